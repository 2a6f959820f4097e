"""`shoal dictionary`: versions are signed one after another, each checked."""

import json
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


def test_a_forged_version_is_found(directory: Path) -> None:
    sign(directory)
    path = directory / "consortium" / "history" / "000001-dictionary.json"
    path.write_bytes(path.read_bytes().replace(b"110", b"120"))
    where = ("--consortium", directory / "consortium", "--authority", directory / "authority")
    said = refused("dictionary", "sign", directory / "dictionary.toml", *where)
    assert "000001-dictionary.json" in said


def test_a_fault_of_a_dictionary_names_the_variable(directory: Path) -> None:
    path = directory / "dictionary.toml"
    path.write_text(FINISHED.replace('levels = ["I", "II", "III"]', 'levels = "I, II"'))
    where = ("--consortium", directory / "consortium", "--authority", directory / "authority")
    said = refused("dictionary", "sign", path, *where)
    assert "stage.category.levels: should be a list" in said
