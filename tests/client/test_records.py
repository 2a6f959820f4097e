"""Loading records: what is wrong is refused at once, named by place and never by value."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from shoal_holder.record_files import read_records
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


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_without_ids_holds_one_row(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"records.{kind}"
    for rows in (1, 2):
        if kind == "csv":
            path.write_text("age\n" + rows * "40\n")
        else:
            parquet_file(path, age=pa.array(rows * [40]))
        if rows == 1:
            assert read_records(path).identity is None
        else:
            with pytest.raises(ValueError, match="several rows without ids"):
                read_records(path)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_order_of_rows_means_nothing(tmp_path: Path, kind: str) -> None:
    rows = [("x", 3.0), ("y", 0.0), ("x", 1.0), ("y", -0.0), ("z", 5.0), ("x", 2.0)]
    found = []
    for order in (rows, rows[::-1], sorted(rows)):
        path = tmp_path / f"records.{kind}"
        if kind == "csv":
            path.write_text("\n".join(["id,age", *(f"{who},{age}" for who, age in order)]))
        else:
            names, ages = zip(*order, strict=True)
            parquet_file(path, id=pa.array(names), age=pa.array(ages))
        records = read_records(path)
        assert records.identity is not None
        found.append(
            {
                who: rows_at(records, place, ["age"]).tobytes()
                for place, who in enumerate(records.identity.ids)
            }
        )
    assert found[0] == found[1] == found[2]


def test_a_parquet_text_that_is_not_utf_8_is_refused_by_its_column_and_no_byte(
    tmp_path: Path,
) -> None:
    parts = [None, pa.py_buffer(np.array([0, 6], np.int32)), pa.py_buffer(b"M\xfcller")]
    latin = pa.Array.from_buffers(pa.string(), 1, parts)
    for names in (("id", "age"), ("age", "id")):
        columns = dict(zip(names, (pa.array(["1"]), latin), strict=True))
        path = parquet_file(tmp_path / "records.parquet", **columns)
        with pytest.raises(ValueError, match=rf"records.parquet, column '{names[1]}': ") as refusal:
            read_records(path)
        assert "not text in UTF-8" in str(refusal.value) and "xfc" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_row_without_an_id_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"records.{kind}"
    if kind == "csv":
        path.write_text("who,age\nx,1\n ,2\n")
    else:
        parquet_file(path, who=pa.array(["x", None]), age=pa.array([1, 2]))
    with pytest.raises(ValueError, match="column 'who': the row has no id"):
        read_records(path, id_column="who")


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
        (b"PK\x03\x04", "is a spreadsheet or an archive: save it as CSV in UTF-8"),
        (b"\x1f\x8b\x08", "is compressed: save it as CSV in UTF-8"),
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
        ("age,pressure\n1,2\n".encode("utf-16"), "is text in UTF-16: save it as CSV in UTF-8"),
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


def parquet_file(path: Path, **columns: pa.Array) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def test_a_parquet_file_gives_the_same_as_a_csv_file(tmp_path: Path, write: Write) -> None:
    path = parquet_file(
        tmp_path / "records.parquet",
        who=pa.array(["x", "y", "x"]),
        age=pa.array([1, 2, 3], pa.int32()),
        pressure=pa.array([1.5, 2.5, 3.5]),
    )
    found = read_records(path, ["pressure", "age"], id_column="who")
    same = read_records(
        write("who,age,pressure\nx,1,1.5\ny,2,2.5\nx,3,3.5\n"),
        ["pressure", "age"],
        id_column="who",
    )
    assert found.columns == same.columns
    assert np.array_equal(found.values, same.values)
    assert np.array_equal(found.starts, same.starts)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, float("nan")]), "row 2, column 'age': not a number"),
        (pa.array([None, float("inf"), 1.0]), "row 2, column 'age': not a number"),
        (pa.array(["1", SECRET + "x"]), "row 2, column 'age': not a number"),
        (pa.array([True]), "row 1, column 'age': not a number"),
        (pa.array([SECRET.encode()]), "column 'age' holds binary, no values"),
        (pa.array([[1.0]]), "column 'age' holds list<"),
        (pa.array([1], pa.timestamp("ns", "UTC")), "row 1, column 'age': not a number"),
        (pa.array([1], pa.time64("ns")), "row 1, column 'age': not a number"),
        (pa.array([10**7], pa.date32()), "row 1, column 'age': not a number"),
        (pa.array([1], pa.duration("ns")), "column 'age' holds duration"),
        (pa.array([], pa.float64()), "holds no records"),
    ],
)
def test_an_unusable_parquet_file_is_refused_by_place_and_without_values(
    tmp_path: Path, column: pa.Array, message: str
) -> None:
    path = parquet_file(tmp_path / "records.parquet", age=column)
    with pytest.raises(ValueError) as refusal:
        read_records(path)
    assert message in str(refusal.value)
    assert SECRET not in str(refusal.value)
