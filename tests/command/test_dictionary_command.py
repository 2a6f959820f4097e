"""`shoal dictionary`: a draft has no bounds, and versions are signed one after another."""

import json
from pathlib import Path

import httpx
import pytest

from shoal_consortium import consortium_files, dictionary_files
from shoal_consortium.party_files import make_authority_directory
from shoal_consortium.publishing import publish_dictionary
from tests.command.running import refused, shoal
from tests.command.test_consortium_building import AUTHORITY, consortium

RECORDS = """id,age,smoker,stage,born
p-1,71.5,yes,II,1950-02-01
p-2,,no,I,1948-12-31
p-3,64,no,,1970-05-05
"""
FINISHED = """
[variables.age]
meaning = "age at admission"
type = "number"
unit = "years"
lower = 18
upper = 110

[variables.stage]
meaning = "stage of the tumour"
type = "category"
levels = ["I", "II", "III"]
missing = "indicator"
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    first = consortium(5)
    consortium_files.create(tmp_path / "consortium", first.signed_manifest, first.roster)
    make_authority_directory(tmp_path / "authority", AUTHORITY)
    (tmp_path / "dictionary.toml").write_text(FINISHED)
    return tmp_path


def sign(directory: Path) -> dict[str, object]:
    told = shoal(
        *("dictionary", "sign", directory / "dictionary.toml", "--json"),
        *("--consortium", directory / "consortium", "--authority", directory / "authority"),
    )
    return dict(json.loads(told.stdout))


def test_a_draft_has_names_types_and_levels_and_no_bounds(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text(RECORDS)
    drafted = shoal("dictionary", "draft", tmp_path / "records.csv").stdout
    assert "71.5" not in drafted and "1950" not in drafted
    (tmp_path / "dictionary.toml").write_text(drafted)
    assert "fill in meaning" in refused("dictionary", "check", tmp_path / "dictionary.toml")
    finished = (
        drafted.replace('meaning = "?"', 'meaning = "as written"')
        .replace('lower = "?"\nupper = "?"', "lower = 0\nupper = 120")
        .replace('earliest = "?"\nlatest = "?"', "earliest = 1900-01-01\nlatest = 2026-01-01")
    )
    (tmp_path / "dictionary.toml").write_text(finished)
    found = dictionary_files.read_variables(tmp_path / "dictionary.toml")
    types = {each.name: each.type for each in found}
    assert types == {
        "id": "category",
        "age": "number",
        "smoker": "flag",
        "stage": "category",
        "born": "date",
    }


def test_a_column_of_many_texts_is_no_draft_of_levels(tmp_path: Path) -> None:
    lines = ["id", *(f"patient-{each}" for each in range(31))]
    (tmp_path / "records.csv").write_text("\n".join(lines))
    assert "patient-" not in shoal("dictionary", "draft", tmp_path / "records.csv").stdout


@pytest.mark.parametrize("text", ["", "a,a\n1,2\n", "a,\n1,2\n", '"a\n', "a\x00,b\n1,2\n"])
def test_a_file_without_names_of_columns_has_no_draft(tmp_path: Path, text: str) -> None:
    (tmp_path / "records.csv").write_text(text)
    refused("dictionary", "draft", tmp_path / "records.csv")


def test_what_is_unknown_or_out_of_range_is_named_by_its_place(tmp_path: Path) -> None:
    for text in (
        "variables = 3",
        "[variable.age]",
        FINISHED + "more = 1",
        FINISHED.replace("upper = 110", "upper = 1"),
        FINISHED.replace('"number"', '"quantity"'),
    ):
        (tmp_path / "dictionary.toml").write_text(text)
        assert "dictionary.toml" in refused("dictionary", "check", tmp_path / "dictionary.toml")


def test_versions_follow_one_another_and_never_change_a_variable(directory: Path) -> None:
    assert sign(directory)["sequence"] == 1
    draft = directory / "dictionary.toml"
    draft.write_text(FINISHED.replace("upper = 110", "upper = 120"))
    told = refused(
        *("dictionary", "sign", draft, "--consortium", directory / "consortium"),
        *("--authority", directory / "authority"),
    )
    assert "only added or retired" in told
    draft.write_text(FINISHED + '\n[variables.new]\nmeaning = "new"\ntype = "flag"\n')
    assert sign(directory)["sequence"] == 2
    shown = json.loads(shoal("dictionary", "show", directory / "consortium", "--json").stdout)
    assert [each["name"] for each in shown["variables"]] == ["age", "stage", "new"]
    newest = (directory / "consortium" / "dictionary.json").read_bytes()
    assert newest == dictionary_files.versions(directory / "consortium")[-1].encode()


def test_a_forged_version_is_found(directory: Path) -> None:
    sign(directory)
    path = directory / "consortium" / "history" / "000001-dictionary.json"
    path.write_bytes(path.read_bytes().replace(b"110", b"120"))
    assert "000001-dictionary.json" in refused("dictionary", "show", directory / "consortium")


def test_without_a_dictionary_there_is_none_to_show_or_publish(directory: Path) -> None:
    for command in ("show", "publish"):
        assert "no dictionary" in refused("dictionary", command, directory / "consortium")


class Trainer(httpx.AsyncBaseTransport):
    """Answers with one status, and keeps what it was sent."""

    def __init__(self, status: int) -> None:
        self.status, self.sent = status, list[bytes]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("PUT", "/v1/dictionary")
        self.sent.append(await request.aread())
        return httpx.Response(self.status, json={})


@pytest.mark.parametrize(("status", "accepted"), [(201, True), (422, False), (503, False)])
def test_all_versions_are_handed_to_the_trainer(
    directory: Path, status: int, accepted: bool
) -> None:
    sign(directory)
    found = dictionary_files.versions(directory / "consortium")
    trainer = Trainer(status)
    outcome = publish_dictionary(consortium(5).manifest.trainer, found, transport=trainer)
    assert outcome.accepted is accepted
    assert trainer.sent[:1] == [found[0].encode()]
