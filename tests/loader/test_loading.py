"""The loader maps raw data by SQL that no other individual's rows enter, and shows no value."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from shoal_holder.record_files import read_records
from shoal_holder.records import Records
from shoal_holder.site_files import RECORDS_BY_ID
from shoal_loader.__main__ import main as loader_main
from shoal_loader.loading import evaluate, write_table
from shoal_loader.mapping import Mapping
from shoal_loader.source import Source
from shoal_protocol.trust.dictionary import DataDictionary
from tests.command.running import shoal
from tests.world.people import rows_at

ROWS = {
    "of-seven": [("40", "F", "1970-01-03", "true", "0.1"), ("41", "F", "", "false", "0.7")],
    "of-eight": [("", "M", "2020-02-29", "", "1e3"), ("-0", "M", "1969-12-31", "true", "-12.25")],
    "of-nine": [("60.5", "", "", "", "")],
}
SCALARS = """
rows_per_record = 2
[columns.age]
sql = "CAST(age AS DOUBLE) / 3"
[columns.sex]
sql = "CASE sex WHEN 'F' THEN 'female' WHEN 'M' THEN 'male' END"
type = "category"
levels = ["female", "male"]
[columns.seen]
sql = "seen"
type = "date"
[columns.smokes]
sql = "smokes"
type = "flag"
"""
AGGREGATES = """
[columns.visits]
sql = "count(*)"
[columns.oldest]
sql = "max(CAST(age AS DOUBLE))"
[columns.lab]
sql = "avg(CAST(lab AS DECIMAL(18, 3))) / 3"
[columns.smoked]
sql = "count(*) FILTER (WHERE smokes = 'true') > 0"
type = "flag"
"""


def directory_with(tmp_path: Path, rows: dict[str, list[tuple[str, ...]]], columns: str) -> Path:
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    directory.mkdir()
    lines = [",".join((each, *row)) for each, its_rows in rows.items() for row in its_rows]
    header = "patient,age,sex,seen,smokes,lab"
    (directory / "raw.csv").write_text("\n".join([header, *lines]) + "\n")
    (directory / "records.toml").write_text('source = "raw.csv"\nid = "patient"\n' + columns)
    return directory


def loaded(directory: Path) -> Records:
    found = evaluate(directory, Mapping.from_directory(directory))
    return read_records(write_table(directory, found))


def by_id(records: Records) -> dict[str, bytes]:
    assert records.identity is not None
    return {
        each: rows_at(records, place, records.columns).tobytes()
        for place, each in enumerate(records.identity.ids)
    }


def run(directory: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "shoal_loader", str(directory), "-"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_type_becomes_numbers_and_a_null_is_missing(tmp_path: Path) -> None:
    found = loaded(directory_with(tmp_path, ROWS, SCALARS))

    assert found.columns == ("age", "sex", "seen", "smokes")
    assert found.identity is not None
    assert (found.identity.ids, found.identity.rows_per_record) == (tuple(sorted(ROWS)), 2)
    np.testing.assert_array_equal(
        rows_at(found, found.identity.ids.index("of-seven"), found.columns),
        [[40 / 3, 0, 2, 1], [41 / 3, 0, np.nan, 0]],
    )
    np.testing.assert_array_equal(
        rows_at(found, found.identity.ids.index("of-eight"), found.columns),
        [[0, 1, -1, 1], [np.nan, 1, 18321, np.nan]],
    )


@pytest.mark.parametrize("columns", [SCALARS, AGGREGATES])
def test_without_one_id_all_others_values_are_the_same_bit_by_bit(
    tmp_path: Path, columns: str
) -> None:
    many = {
        f"{n:05}": [
            (str(n % 90), "FM"[n % 2], "2020-02-29", "true", f"{n * 7919 % 1000}.{k}")
            for k in range(1 + n % 3)
        ]
        for n in range(3000)
    }
    whole = by_id(loaded(directory_with(tmp_path, ROWS | many, columns)))
    for gone in ("of-eight", "of-nine", "00000", "02048"):
        others = {each: rows for each, rows in (ROWS | many).items() if each != gone}
        rest = by_id(loaded(directory_with(tmp_path, others, columns)))
        assert rest == {each: values for each, values in whole.items() if each != gone}


def test_an_id_is_text_without_space_around_it_in_one_form_of_unicode(tmp_path: Path) -> None:
    rows = {"  Zoe\u0301 ": ROWS["of-nine"], "Zo\u00e9": ROWS["of-nine"], "007": ROWS["of-nine"]}
    found = loaded(directory_with(tmp_path, rows, SCALARS))
    assert found.identity is not None
    assert found.identity.ids == ("007", "Zo\u00e9")
    assert found.counts.tolist() == [1, 2]


@pytest.mark.parametrize(
    "sql",
    [
        "row_number() OVER ()",
        "lag(age) OVER (ORDER BY patient)",
        "(SELECT 1)",
        "(SELECT max(age) FROM source)",
        "EXISTS (SELECT 1)",
        "CAST(age AS DOUBLE) > ANY (SELECT 1)",
        "count(DISTINCT age)",
        "sum(CAST(age AS DOUBLE))",
        "avg(CAST(age AS FLOAT))",
        "sum(age)",
        "first(age)",
        "any_value(age)",
        "arg_max(age, seen)",
        "string_agg(age, ',' ORDER BY age)",
        "random()",
        "uuid()",
        "hash(age)",
        "now()",
        "current_date",
        "nextval('s')",
        "getenv('HOME')",
        "current_setting('threads')",
        "read_text('/etc/passwd')",
        "rowid",
        '"shoal record id"',
        "source",
        "source.age",
        "COLUMNS(*)",
        "*",
        "#1",
        "?",
        "[x FOR x IN [1]]",
        "list_transform([1], lambda x: x)",
        "{'a': 1}",
        "age COLLATE NOCASE",
        "CAST(age AS BLOB)",
        "age, sex",
        "1) AS value FROM source; SELECT (1",
        "1) AS DOUBLE), CAST((age",
        "age) AS DOUBLE) AS value FROM source LIMIT 1 --",
        "1 ORDER BY 1",
        "1 FROM other",
        "",
        "--",
        "no_such_column",
        "max(max(age))",
        "abs(1) FILTER (WHERE true)",
        "main.abs(1)",
    ],
)
def test_what_is_no_scalar_of_a_row_or_aggregate_of_an_id_is_refused(
    tmp_path: Path, sql: str
) -> None:
    columns = f"[columns.x]\nsql = '''{sql}'''\n"
    directory = directory_with(tmp_path, ROWS, columns)
    with pytest.raises(ValueError, match=r"columns\.x"):
        evaluate(directory, Mapping.from_directory(directory))


@pytest.mark.parametrize("name", ["lambda", "weight (kg)"])
def test_a_column_whose_name_sql_reads_otherwise_is_said_to_need_quotes(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "raw.csv").write_text(f"patient,{name}\none,2\n")
    head = 'source = "raw.csv"\nid = "patient"\n[columns.x]\nsql = '
    mapping = tmp_path / "records.toml"
    mapping.write_text(f"{head}'CAST({name} AS DOUBLE)'\n")
    with pytest.raises(ValueError, match=re.escape(f"""needs double quotes: sql = '"{name}"'""")):
        evaluate(tmp_path, Mapping.from_directory(tmp_path))
    mapping.write_text(f"""{head}'CAST("{name}" AS DOUBLE)'\n""")
    assert loaded(tmp_path).values.tolist() == [[2.0]]


SECRET = "Zaphod"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("CAST(sex AS DOUBLE)", "raw.csv, line 4: a cast or function"),
        ("age * 2", "write CAST"),
        ("CAST(sex AS BIGINT) + 1", "raw.csv, line 4: a cast or function"),
        ("CAST(lab AS DOUBLE)", "raw.csv, line 4: not a finite number"),
        ("max(CAST(sex AS DOUBLE))", "raw.csv, line 4: a cast or function"),
        ("CAST(strptime(seen, '%d') AS VARCHAR)", "line 2"),
    ],
)
def test_an_error_names_variable_and_row_and_no_value_or_id(
    tmp_path: Path, sql: str, said: str
) -> None:
    rows = {
        "one": [("1", "2", "3", "4", "5")] * 2,
        f"{SECRET}-7": [(SECRET, SECRET, SECRET, SECRET, "inf")],
    }
    directory = directory_with(tmp_path, rows, f'[columns.x]\nsql = """{sql}"""\n')

    done = run(directory)

    assert (done.returncode, done.stdout) == (1, "")
    assert "variable 'x'" in done.stderr
    assert said in done.stderr
    assert SECRET not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (directory / RECORDS_BY_ID).exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{SECRET},1,2,3,4,5,6", "raw.csv, line 7: 7 fields, and line 1 has 6"),
        (f'{SECRET},"1"x,2,3,4,5', "raw.csv, line 7: the row that begins there is not CSV"),
        (f" ,{SECRET},2,3,4,5", "line 7, column 'patient': the row has no id"),
        (f"{SECRET}\x07,1,2,3,4,5", "line 7, column 'patient': not an id"),
    ],
)
def test_a_broken_row_is_refused_without_being_shown(tmp_path: Path, line: str, said: str) -> None:
    directory = directory_with(tmp_path, ROWS, SCALARS)
    with (directory / "raw.csv").open("a") as file:
        file.write(line + "\n")

    done = run(directory)

    assert done.returncode == 1
    assert said in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_file_that_is_replaced_while_it_is_read_is_refused(tmp_path: Path) -> None:
    directory = directory_with(tmp_path, ROWS, SCALARS)
    mapping = Mapping.from_directory(directory)
    source = Source(directory, mapping)  # read the header
    raw, fresh = directory / "raw.csv", directory / "fresh.csv"
    fresh.write_text(raw.read_text().replace("age", "lab", 1).replace("lab\n", "age\n", 1))
    fresh.replace(raw)
    with pytest.raises(ValueError, match="changed while it was read"):
        source.read({"age"})


def test_texts_that_are_no_level_are_refused_without_being_shown(tmp_path: Path) -> None:
    rows = {"one": [("1", SECRET, "", "", "")]}
    columns = "[columns.sex]\nsql = 'sex'\ntype = 'category'\nlevels = ['F', 'M']\n"

    done = run(directory_with(tmp_path, rows, columns))

    assert done.returncode == 1
    assert "variable 'sex' cannot be made of " in done.stderr
    assert ", line 2: a text that is none of its levels" in done.stderr
    assert SECRET not in done.stderr


def test_a_table_is_its_owners_alone_and_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    directory = directory_with(tmp_path, ROWS, SCALARS)
    assert "3 records of 5 rows" in run(directory).stdout
    table = directory / RECORDS_BY_ID
    assert stat.S_IMODE(table.stat().st_mode) == 0o600
    before = table.read_bytes()

    with (directory / "raw.csv").open("a") as file:
        file.write("late,no number,,,,\n")
    assert run(directory).returncode == 1
    assert table.read_bytes() == before
    assert {each.name for each in directory.iterdir()} == {"raw.csv", "records.toml", table.name}

    table.chmod(0o644)
    with pytest.raises(ValueError, match="open to other users"):
        read_records(table)


def test_a_table_that_the_loader_did_not_write_is_refused_without_quoting_it(
    tmp_path: Path,
) -> None:
    directory = directory_with(tmp_path, ROWS, SCALARS)
    assert run(directory).returncode == 0
    table = directory / RECORDS_BY_ID
    with np.load(table) as arrays:
        columns = dict(arrays)
    np.savez(table, **columns | {"column0": np.array([SECRET] * len(columns["column0"]))})
    with pytest.raises(ValueError, match=r"no table of records; run `shoal records load`$"):
        read_records(table)
    table.write_bytes(SECRET.encode())
    with pytest.raises(ValueError) as refused:
        read_records(table)
    assert SECRET not in str(refused.value)


def test_parquet_files_and_databases_are_sources_too(tmp_path: Path) -> None:
    columns = "[columns.age]\nsql = 'age / 2'\n[columns.seen]\nsql = 'seen'\ntype = 'date'\n"
    select = "SELECT n AS patient, n * 1.5 AS age, DATE '1970-01-01' + n AS seen FROM range(3) t(n)"
    expected = [[0, 0], [0.75, 1], [1.5, 2]]
    with duckdb.connect(str(tmp_path / "hospital.db")) as database:
        database.execute(f"CREATE TABLE visits AS {select.replace('+ n', '+ CAST(n AS INT)')}")
        database.execute(f"COPY visits TO '{tmp_path / 'visits.parquet'}'")
    for source in ('"visits.parquet"', '{database = "hospital.db", table = "visits"}'):
        (tmp_path / "records.toml").write_text(f'source = {source}\nid = "patient"\n{columns}')
        found = loaded(tmp_path)
        assert found.values.tolist() == expected
        assert found.identity is not None
        assert found.identity.ids == ("0", "1", "2")

    (tmp_path / "records.toml").write_text(f'source = "visits.parquet"\nid = "age"\n{columns}')
    with pytest.raises(ValueError, match="an id is text or a whole number"):
        loaded(tmp_path)


def test_only_the_named_file_is_open_to_the_database_and_nothing_of_it_can_be_changed(
    tmp_path: Path,
) -> None:
    from shoal_loader.source import Source

    directory = directory_with(tmp_path, ROWS, SCALARS)
    (directory / "other.csv").write_text("x\n1\n")
    source = Source(directory, Mapping.from_directory(directory))
    for statement in (
        f"SELECT * FROM read_csv('{directory / 'other.csv'}')",
        f"ATTACH '{directory / 'new.db'}'",
        f"COPY (SELECT 1) TO '{directory / 'out.csv'}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 8",
        "SET enable_external_access = true",
    ):
        with pytest.raises(duckdb.Error):
            source.database.execute(statement)


DICTIONARY = """
[variables.age]
meaning = "age"
type = "number"
lower = 18
upper = 100
missing = "indicator"

[variables.sex]
meaning = "sex as recorded"
type = "category"
levels = ["female", "male"]
missing = "indicator"

[variables.seen]
meaning = "first day seen"
type = "date"
earliest = 1960-01-01
latest = 2030-01-01

[variables.smokes]
meaning = "smokes today"
type = "flag"
missing = "indicator"
"""


def dictionary(text: str = DICTIONARY) -> DataDictionary:
    variables = [{"name": name, **each} for name, each in tomllib.loads(text)["variables"].items()]
    return DataDictionary.model_validate(
        {
            "consortium": "example",
            "authority": "0" * 64,
            "sequence": 1,
            "previous": None,
            "variables": variables,
        }
    )


def without_levels() -> str:
    return SCALARS.replace('levels = ["female", "male"]\n', "")


def test_a_dictionary_gives_levels_and_what_becomes_of_missing_values(tmp_path: Path) -> None:
    directory = directory_with(tmp_path, ROWS, without_levels())
    known = dictionary()
    mapping = Mapping.from_directory(directory, known)
    write_table(directory, evaluate(directory, mapping), known)
    found = read_records(directory / RECORDS_BY_ID)
    assert found.identity is not None
    assert found.columns == (
        *("age", "sex", "seen", "smokes"),
        *("age_missing", "sex_missing", "smokes_missing"),
    )
    of_eight = rows_at(found, found.identity.ids.index("of-eight"), found.columns)
    np.testing.assert_array_equal(of_eight, [[0, 1, -1, 1, 0, 0, 0], [59, 1, 18321, 0, 1, 0, 1]])
    of_nine = rows_at(found, found.identity.ids.index("of-nine"), found.columns)
    np.testing.assert_array_equal(of_nine, [[60.5 / 3, 0, np.nan, 0, 0, 1, 1]])


@pytest.mark.parametrize(
    ("columns", "text", "said"),
    [
        (
            SCALARS,
            DICTIONARY.replace("variables.age]", "variables.years]"),
            "columns.age is not in",
        ),
        (
            SCALARS,
            DICTIONARY.replace('"flag"', '"flag"\nretired = true'),
            "columns.smokes is not in",
        ),
        (
            SCALARS.replace('type = "flag"', 'type = "number"'),
            DICTIONARY,
            'columns.smokes is a flag in .*: write type = "flag"',
        ),
        (
            SCALARS.replace('["female", "male"]', '["male", "female"]'),
            DICTIONARY,
            "columns.sex: the dictionary has other levels",
        ),
    ],
)
def test_a_mapping_that_the_dictionary_contradicts_is_refused(
    tmp_path: Path, columns: str, text: str, said: str
) -> None:
    directory = directory_with(tmp_path, ROWS, columns)
    with pytest.raises(ValueError, match=said):
        Mapping.from_directory(directory, dictionary(text))


def test_the_command_takes_bounds_from_a_dictionary_that_the_authority_signed(
    tmp_path: Path,
) -> None:
    home = tmp_path / "federation"
    (tmp_path / "dictionary.toml").write_text(DICTIONARY)
    made = shoal(
        *("quickstart", home, "--dictionary", tmp_path / "dictionary.toml"),
        *("--clients", "one=30", "--clients", "two=30"),
    )
    assert made.exit_code == 0
    (tmp_path / "raw").mkdir()
    directory = directory_with(tmp_path / "raw", ROWS, without_levels())
    for each in directory.iterdir():
        each.rename(home / "clients" / "one" / each.name)
    site, consortium = home / "clients" / "one", home / "consortium"
    before = shoal("records", "check", site, "--consortium", consortium, status=1)
    assert "`shoal records load` makes one" in before.stderr
    assert "grow" not in shoal("records", "load", site, "--consortium", consortium).stderr
    grown = shoal("agent", "grow", site, "--slots", 2)
    assert "2 slots in all" in grown.stdout
    warned = shoal("records", "load", site, "--consortium", consortium).stderr
    assert "3 individuals and 2 slots" in warned and "--slots 3" in warned
    assert "sex_missing" in read_records(site / RECORDS_BY_ID).columns
    checked = shoal("records", "check", site, "--consortium", consortium, "--json")
    found = json.loads(checked.stdout)
    assert (found["clients"], found["rows"]) == (3, 5)
    assert found["outside_bounds"] == {"age": 3, "sex": 0, "seen": 0, "smokes": 0}
    two = home / "clients" / "two"
    nothing = shoal("records", "load", two, "--consortium", consortium, status=1)
    assert "there is no records.toml in" in nothing.stderr
    (two / "records.csv").write_text("id, age\na,40\nb,50\n")
    said = shoal("records", "check", two).stdout
    assert "2 clients with 2 rows" in said and "without spaces around the column's name" in said
    foreign = site / "records.toml"
    mapping = foreign.read_text()
    foreign.write_text(mapping + '[columns.weight]\nsql = "1"\n')
    refused = shoal("records", "load", site, "--consortium", consortium, status=1)
    assert "dictionary, which has age, sex, seen, smokes" in refused.stderr
    foreign.write_text(mapping.replace("CAST(age AS DOUBLE) / 3", "CAST(sex AS DOUBLE)"))
    faulty = shoal("records", "load", site, "--consortium", consortium, status=1)
    assert "variable 'age' cannot be made of " in faulty.stderr
    foreign.write_text(mapping)
    forged = (consortium / "dictionary.json").read_bytes().replace(b"2030", b"2031")
    (consortium / "dictionary.json").write_bytes(forged)
    shoal("records", "load", site, "--consortium", consortium, status=3)


ZONED = (
    'id = "id"\n[columns.seen]\nsql = "CAST(seen AS DATE)"\ntype = "date"\n'
    '[columns.hour]\nsql = "hour(CAST(seen AS TIMESTAMP))"\n'
)
MOMENTS = ["2024-03-31T00:30:00", "2024-03-30T23:30:00", "2024-10-27T00:30:00"]  # in UTC


def zoned(tmp_path: Path, source: str, top: str) -> Path:
    """Write three moments, of which two are in the night that clocks change in Helsinki."""
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    directory.mkdir()
    ids, path = ["a", "b", "c"], directory / f"raw.{source.partition(' ')[0]}"
    match source.split():
        case ["parquet", unit]:
            seen = pa.array(np.array(MOMENTS, f"datetime64[{unit}]"), pa.timestamp(unit, "UTC"))
            parquet.write_table(pa.table({"id": pa.array(ids), "seen": seen}), path)
        case ["csv", zone]:
            written = {
                "Z": lambda each: each + "Z",
                "offset": lambda each: (
                    str(np.datetime64(each) + np.timedelta64(9, "h")) + " +09:00"
                ),
                "name": lambda each: each.replace("T", " ") + " UTC",
            }[zone]
            rows = [f"{who},{written(each)}" for who, each in zip(ids, MOMENTS, strict=True)]
            path.write_text("\n".join(["id,seen", *rows]))
        case _:
            with duckdb.connect(str(path)) as database:
                database.execute(
                    "SET TimeZone = 'UTC'; CREATE TABLE t (id VARCHAR, seen TIMESTAMPTZ)"
                )
                rows = [[who, each + "+00"] for who, each in zip(ids, MOMENTS, strict=True)]
                database.executemany("INSERT INTO t VALUES (?, ?)", rows)
    named = '{database = "raw.db", table = "t"}' if source == "db" else f'"{path.name}"'
    (directory / "records.toml").write_text(f"source = {named}\n{top}{ZONED}")
    return directory


@pytest.mark.parametrize(
    "source", ["parquet us", "parquet ns", "csv Z", "csv offset", "csv name", "db"]
)
def test_a_time_with_a_zone_is_read_as_the_clock_showed_in_the_zone_that_is_stated(
    tmp_path: Path, source: str
) -> None:
    with pytest.raises(ValueError, match="column 'seen': times have a zone") as refusal:
        loaded(zoned(tmp_path, source, ""))
    assert 'time_zone = "UTC"' in str(refusal.value)
    first = float((np.datetime64("2024-03-31") - np.datetime64("1970-01-01")).astype(int))
    autumn = float((np.datetime64("2024-10-27") - np.datetime64("1970-01-01")).astype(int))
    for zone, expected in {
        "UTC": [[first, 0], [first - 1, 23], [autumn, 0]],
        "Europe/Helsinki": [[first, 2], [first, 1], [autumn, 3]],
        "America/New_York": [[first - 1, 20], [first - 1, 19], [autumn - 1, 20]],
    }.items():
        directory = zoned(tmp_path, source, f'time_zone = "{zone}"\n')
        assert loaded(directory).values.tolist() == expected


@pytest.mark.slow
@pytest.mark.parametrize("source", ["parquet us", "csv Z"])
def test_the_same_bytes_give_the_same_records_under_every_environment(
    tmp_path: Path, source: str
) -> None:
    directory = zoned(tmp_path, source, 'time_zone = "Europe/Helsinki"\n')
    elsewhere = tmp_path / "Zoë's [1] *"
    elsewhere.mkdir()
    one_processor = ["taskset", "-c", "0"] if shutil.which("taskset") else []
    found = set()
    for environment, before, where in (
        ({}, [], Path.cwd()),
        ({"TZ": "America/Los_Angeles", "LC_ALL": "th_TH.UTF-8"}, [], elsewhere),
        ({"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONUTF8": "0"}, one_processor, directory),
        ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}, [], elsewhere),
        ({"LANG": "tr_TR.UTF-8", "OMP_NUM_THREADS": "3", "TZ": "Etc/GMT+12"}, [], elsewhere),
    ):
        words = [*before, sys.executable, "-m", "shoal_command", "records", "load", str(directory)]
        done = subprocess.run(
            words, capture_output=True, env={**os.environ, **environment}, cwd=where, check=True
        )
        read = read_records(directory / RECORDS_BY_ID)
        assert read.identity is not None
        found.add((read.identity.ids, read.values.tobytes(), done.stdout))
    assert len(found) == 1
    assert b"as the clock showed in Europe/Helsinki" in done.stdout


@pytest.mark.parametrize("text", ["24-03-01", "infinity", "01/02/2024", "2024-02-30", "45352"])
def test_what_is_no_day_with_a_year_of_four_digits_is_refused(tmp_path: Path, text: str) -> None:
    columns = '[columns.x]\nsql = "seen"\ntype = "date"\n'
    done = run(directory_with(tmp_path, {"one": [("", "", text, "", "")]}, columns))
    assert done.returncode == 1
    assert "raw.csv, line 2" in done.stderr and text not in done.stderr


def test_the_owner_is_told_where_the_system_refuses_isolation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = directory_with(tmp_path, ROWS, SCALARS)
    monkeypatch.setattr("sys.argv", ["shoal_loader", str(directory), "-"])
    for held, said in (("no network", False), ("none", True)):
        monkeypatch.setattr("shoal_holder.isolation.isolate", lambda held=held: held)
        assert loader_main() == 0
        assert ("refused to cut the loader off" in capsys.readouterr().out) is said
