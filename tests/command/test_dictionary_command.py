"""`shoal dictionary`: versions are signed one after another, each checked."""

import json
import tomllib
from pathlib import Path

import pytest

from shoal_consortium import consortium_files
from shoal_consortium.party_files import make_authority_directory
from tests.command.running import refused, shoal
from tests.command.test_consortium_building import AUTHORITY, consortium

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


PERSONS = 60
TYPED = {
    "category": ("mood", ["rare", *["common"] * (PERSONS - 1)]),
    "flag": ("smoker", ["yes", "no"] * 30),
    "number": ("weight", ["71", "NA", "72.5"] * 20),
    "number with a comma": ("weight", ['"71,5"', '"72,5"'] * 30),
    "number with a unit": ("dose", ["71 mg", "72 mg"] * 30),
    "date": ("seen", ["1971-02-01", "1972-02-01"] * 30),
    "date otherwise": ("seen", ["1.2.71", "28/2/72"] * 30),
    "date in words": ("seen", ["3 Feb 71", "Mar 72"] * 30),
}


@pytest.mark.parametrize("what", TYPED)
def test_a_draft_has_types_and_no_value(tmp_path: Path, what: str) -> None:
    name, values = TYPED[what]
    path = tmp_path / "records.csv"
    rows = "".join(f"p-{each},{value}\n" for each, value in enumerate(values))
    path.write_text(f"id,{name}\n{rows}")
    drafted = shoal("dictionary", "draft", path).stdout
    assert tomllib.loads(drafted)["variables"][name]["type"] == what.partition(" ")[0]
    assert [value for value in {*values, "p-1"} if f'"{value.strip(chr(34))}"' in drafted] == []


@pytest.mark.parametrize(
    "first", ["P-17,Bauer", "id,Dr Bauer", "id,1971-02-01", "id,a@example.org", "id,Smith", "Bo,Jo"]
)
def test_a_first_line_that_may_be_a_record_is_refused_and_not_shown(
    tmp_path: Path, first: str
) -> None:
    path = tmp_path / "records.csv"
    path.write_text(f"{first}\n" + "".join(f"P-{each},Smith\n" for each in range(9)))
    said = refused("dictionary", "draft", path)
    assert not [each for each in first.split(",") if each != "id" and each in said]


def test_a_forged_version_is_found(directory: Path) -> None:
    sign(directory)
    path = directory / "consortium" / "history" / "000001-dictionary.json"
    path.write_bytes(path.read_bytes().replace(b"110", b"120"))
    where = ("--consortium", directory / "consortium", "--authority", directory / "authority")
    said = refused("dictionary", "sign", directory / "dictionary.toml", *where)
    assert "000001-dictionary.json" in said


@pytest.mark.parametrize(
    ("finished", "said"),
    [
        ('levels = "I, II"', "stage.category.levels: should be a list"),
        ('levels = ["?"]', "fill in levels of stage"),
    ],
)
def test_a_fault_of_a_dictionary_names_the_variable_and_what_to_write(
    directory: Path, finished: str, said: str
) -> None:
    path = directory / "dictionary.toml"
    path.write_text(FINISHED.replace('levels = ["I", "II", "III"]', finished))
    where = ("--consortium", directory / "consortium", "--authority", directory / "authority")
    assert said in refused("dictionary", "sign", path, *where)
