"""Loading records: what is wrong is refused at once, named by place and never by value."""

from collections.abc import Callable
from pathlib import Path

import pytest

from shoal_holder.record_files import read_records
from shoal_holder.records import ALONE
from tests.world.people import rows_at

SECRET = "7777.25"
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: str | bytes) -> Path:
        path = tmp_path / "records.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def test_a_file_without_ids_holds_one_row(write: Write) -> None:
    assert read_records(write("age\n40\n")).identity is ALONE
    with pytest.raises(ValueError, match="csv: several rows without ids"):
        read_records(write("age\n40\n40\n"))
    with pytest.raises(
        ValueError, match=r"'patient': not a number.*; a column of ids is called 'id'"
    ):
        read_records(write("patient,age\np-1,40\np-2,41\n"))


def test_the_order_of_rows_means_nothing(write: Write) -> None:
    rows = [("x", 3.0), ("y", 0.0), ("x", 1.0), ("y", -0.0), ("z", 5.0), ("x", 2.0)]
    found = []
    for order in (rows, rows[::-1], sorted(rows)):
        lines = ["id,age", *(f"{who},{age}" for who, age in order)]
        records = read_records(write("\n".join(lines)))
        assert records.identity is not None
        found.append(
            {
                who: rows_at(records, place, ["age"]).tobytes()
                for place, who in enumerate(records.identity.ids)
            }
        )
    assert found[0] == found[1] == found[2]


def test_a_row_without_an_id_is_refused(write: Write) -> None:
    with pytest.raises(ValueError, match="column 'who': the row has no id"):
        read_records(write("who,age\nx,1\n ,2\n"), id_column="who")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("age,pressure\n", "holds no records"),
        ("age\n1\n", "there is no column 'pressure'"),
        (f"age;pressure\n{SECRET};2\n", "line 1: field 1 has semicolons in it"),
        (f"age\tpressure\n{SECRET}\t2\n", "line 1: field 1 has tabs in it"),
        (f"age|pressure\n{SECRET}|2\n", "line 1: field 1 has bars in it"),
        (f"age;pressure, mmHg\n{SECRET};2,3\n", "line 1: field 1 has semicolons in it"),
        ("age,age,pressure\n1,2,3\n", "line 1: fields 1 and 2 are the same name"),
        ("e\u0301,pressure, \u00e9\n1,2,3\n", "line 1: fields 1 and 3 are the same name"),
        ("age,pressure,Age\n1,2,3\n", "line 1: fields 1 and 3 are the same name"),
        ("Age,pressure\n1,2\n", "there is no column 'age'; near to it is 'Age'"),
        ("Id,age,pressure\n1,2,3\n", "there is no column 'id'; near to it is 'Id'"),
        ("age,pressure,\n1,2,\n", "line 1: field 3 is not a column's name"),
        ("id,age,pressure\n1.0,2,3\n", "line 2, column 'id': the id is written as a number"),
        ("id,age,pressure\n1.2E+11,2,3\n", "line 2, column 'id': the id is written as a number"),
        ("id,age,pressure\nNA,2,3\n", "line 2, column 'id': the row has no id"),
        ("id,age,pressure\n\u200b,2,3\n", "line 2, column 'id': the row has no id"),
        ("id,age,pressure\nx\ny,2,3\n", "line 2: 1 fields, and line 1 has 3"),
        ('id,age,pressure\n"x\ny",2,3\n', "line 2, column 'id': not an id"),
        ("age,pressure\n1\0,2\n", "line 2: not text in UTF-8"),
        ("age,pressure\r1,2\r\xff", "line 3: 1 fields, and line 1 has 2"),
        (b"age,pressure\r1,2\r\xff", "line 3: not text in UTF-8"),
        (f'age,pressure\n"{SECRET},2\n3,4\n', "line 2: the row that begins there is not CSV"),
        (f"age,pressure\n{'1' * 200_000},2\n", "line 2: the row that begins there is not CSV"),
        ('age,pressure\n"1,5",2\n', "line 2, column 'age': not a number"),
        ('age,pressure\n"1,234",2\n', "line 2, column 'age': not a number"),
        ("age,pressure\n1 234,2\n", "line 2, column 'age': not a number"),
        ("age,pressure\n\u0661,2\n", "line 2, column 'age': not a number"),
        ("age,pressure\nNA,2\n", "line 2, column 'age': not a number"),
        (b"PK\x03\x04\x14\x00", "line 1: not text in UTF-8: save it as CSV in UTF-8"),
        (b"PAR1\x15\x00", "line 1: not text in UTF-8: save it as CSV in UTF-8"),
        (b"\x1f\x8b\x08", "line 1: not text in UTF-8: save it as CSV in UTF-8"),
        ("age,,pressure\n1,2,3\n", "line 1: field 2 is not a column's name"),
        (f"{SECRET},pressure\n1,2\n", "line 1: field 1 is not a column's name"),
        (f"age,pressure\n1,2\n3,{SECRET}x\n", "line 3, column 'pressure': not a number"),
        ("age,pressure\nnan,2\n", "line 2, column 'age': not a number"),
        ("age,pressure\n-inf,2\n", "line 2, column 'age': not a number"),
        ("age,pressure\n1e999,2\n", "line 2, column 'age': not a finite number"),
        ("age,pressure\n1_000,2\n", "line 2, column 'age': not a number"),
        (f"age,pressure\n{SECRET},2,3\n", "line 2: 3 fields, and line 1 has 2"),
        ("age,pressure\n1,2\n\n\n3,4\n", "line 3: blank line"),
        ('"age","a\nb",pressure\n1,2,3\nx,2,3\n', "line 4, column 'age': not a number"),
        (f'age,pressure\n1,"{SECRET}"x\n', "line 2: the row that begins there is not CSV"),
        (f'age,pressure\n1,"{SECRET}\n', "line 2: the row that begins there is not CSV"),
        (b"age,pressure\n1,2\n3,\xff4\n", "line 3: not text in UTF-8"),
        ("\u00e4ge,pressure\n1,2\n".encode("cp1252"), "line 1: not text in UTF-8"),
        (
            "age,pressure\n1,2\n".encode("utf-16"),
            "line 1: not text in UTF-8: save it as CSV in UTF-8",
        ),
        ("age,pressure\n1,2\n".encode("utf-16-le"), "line 1: not text in UTF-8"),
    ],
)
def test_an_unusable_file_is_refused_by_place_and_without_values(
    write: Write, content: str, message: str
) -> None:
    path = write(content)
    with pytest.raises(ValueError) as refusal:
        read_records(path, ["age", "pressure"])
    assert message in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert SECRET not in str(refusal.value)
    assert "Traceback" not in str(refusal.value)
    assert refusal.value.__cause__ is None  # nothing that a log could print below it
