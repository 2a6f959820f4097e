"""`shoal dictionary`: a draft has no bounds, and versions are signed one after another."""

import json
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

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
HIDDEN = {
    "many texts": ("mood", [f"mood {chr(97 + each % 23)}" for each in range(PERSONS)]),
    "a rare text": ("mood", ["rare", *["common"] * (PERSONS - 1)]),
    "a name that says so": ("surname", ["Bauer", "Smith"] * 30),
    "one in two words": ("treatingPhysician", ["Bauer", "Smith"] * 30),
    "one in capitals": ("PATIENT_NO", ["Qx", "Qy"] * 30),
    "digits": ("code", ["A-10117", "B-10115"] * 30),
    "mail addresses": ("contact", ["a@example.org", "b@example.org"] * 30),
    "sentences": ("said", ["was much too tired", "felt well enough today"] * 30),
    "numbered texts": ("subject7", [f"s{each % 10:02}" for each in range(PERSONS)]),
    "numbers": ("weight", [f"{70 + each % 3}" for each in range(PERSONS)]),
    "numbers and gaps": ("weight", ["71", "NA", "72"] * 20),
    "decimal commas": ("weight", ['"71,5"', '"72,5"'] * 30),
    "numbers beyond a limit": ("weight", ["<71", "72"] * 30),
    "amounts": ("dose", ["71 mg", "72 mg"] * 30),
    "days": ("seen", ["1971-02-01", "1972-02-01"] * 30),
    "days otherwise": ("seen", ["1.2.71", "28/2/72"] * 30),
    "days in words": ("seen", ["3 Feb 71", "Mar 72"] * 30),
    "moments": ("seen", ["1971-02-01T10:30:00+01:00", "1972-02-01 11:00"] * 30),
    "hours": ("seen", ["10:30", "11:00"] * 30),
}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("why", HIDDEN)
def test_no_value_of_a_column_that_may_identify_or_is_no_clear_code_is_shown(
    tmp_path: Path, why: str, kind: str
) -> None:
    name, values = HIDDEN[why]
    path = tmp_path / f"records.{kind}"
    if kind == "csv":
        rows = "".join(f"p-{each},{value}\n" for each, value in enumerate(values))
        path.write_text(f"id,{name}\n{rows}")
    else:
        bare = pa.array([value.strip('"') for value in values])
        ids = pa.array([f"p-{each}" for each in range(len(values))])
        parquet.write_table(pa.table({"id": ids, name: bare}), path)
    drafted = shoal("dictionary", "draft", path).stdout
    shown = tomllib.loads(drafted)["variables"][name]
    assert shown.get("levels", "?") == "?"
    assert [value for value in set(values) if value.strip('"') in drafted] == []


def test_a_text_of_few_persons_is_not_shown_however_many_rows_they_have(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    for persons, shown in ((4, False), (5, True)):
        rows = (f"p-{each % persons},{each % 2 * persons},v\n" for each in range(60))
        path.write_text("id,visit,arm\n" + "".join(rows))
        assert ('levels = ["v"]' in shoal("dictionary", "draft", path).stdout) is shown


VISITS = ("Huntington", "Mayor of Bonn"), ("measles", "teacher")
OF_OTHERS = {
    "ids in the second column": (
        "visit_date,patient_id,diagnosis,work",
        [f"2024-01-{n + 1:02},P-{p},{','.join(VISITS[p])}" for p in range(2) for n in range(5)],
    ),
    "ids in capitals": ("ID,work", [f"{p},{VISITS[p][1]}" for p in range(2) for _ in range(5)]),
    "ids of visits first": (
        "visit_id,patient,diagnosis",
        [f"{p}{n},{p},{VISITS[p][0]}" for p in range(2) for n in range(9)],
    ),
    "a person's age by the ids": (
        "patient_age,fall,diagnosis",
        [f"{20 + n},{p},{VISITS[p][0]}" for p in range(2) for n in range(9)],
    ),
    "ids called otherwise": (
        "week,record,dx,bmi,age",
        [f"1,P{p},rare {'abcdef'[p]},2{p}.5,7{p}" for p in range(6) for _ in range(5)],
    ),
    "ids of one shape beside others": (
        "id,owner,dx",
        [f"{p}{n},K{p},rare {'abcdef'[p]}" for p in range(6) for n in range(5)],
    ),
    "staff": ("id,surgeon,lead_of_ward", [f"{n},Huber,Schmidt" for n in range(30)]),
    "names of persons": (
        "id,seen,made,asked,took,gave,wrote",
        [
            f'{n},Dr Huber,Anna Schmidt,"Schmidt, A",A. Huber,ANNA SCHMIDT,anna.schmidt'
            for n in range(30)
        ],
    ),
    "one id in several ways": (
        "id,dx",
        [f"{('7', '07', '7.0', ' 7', '+7', '0007.')[n % 6]},rare" for n in range(30)],
    ),
    "missing ids": ("id,dx", [f"{'NA' if n < 28 else n},rare" for n in range(30)]),
    "few of another column's": (
        "id,number,dx",
        [f"{p}{n},{p},{VISITS[p % 2][0]}" for p in range(6) for n in range(9)],
    ),
}


@pytest.mark.parametrize("what", OF_OTHERS)
def test_no_text_is_shown_of_fewer_persons_than_five_whatever_their_column_is_called(
    tmp_path: Path, what: str
) -> None:
    header, rows = OF_OTHERS[what]
    (tmp_path / "records.csv").write_text("\n".join([header, *rows, ""]))
    drafted = shoal("dictionary", "draft", tmp_path / "records.csv").stdout
    shown = tomllib.loads(drafted)["variables"].values()
    assert [each["levels"] for each in shown if each.get("levels", "?") != "?"] == []


def test_a_forged_version_is_found(directory: Path) -> None:
    sign(directory)
    path = directory / "consortium" / "history" / "000001-dictionary.json"
    path.write_bytes(path.read_bytes().replace(b"110", b"120"))
    assert "000001-dictionary.json" in refused("dictionary", "show", directory / "consortium")
