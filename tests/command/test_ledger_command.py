"""`shoal ledger verify` tells a data holder's whole journal from one that was changed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from shoal_command import connection
from shoal_protocol.journal import EMPTY, Head, Link, Shown, ShownStatement, content_hash
from shoal_protocol.wire.encoding import canonical_json
from tests.command.running import run

SALT = "5a" * 16


def journal() -> list[Shown]:
    """Return a data holder's journal, which has joined three jobs."""
    entries, head = list[Shown](), EMPTY
    for number in range(1, 4):
        said = ShownStatement(salt=SALT, kind="join", subject=str(number), document={"slots": ""})
        content = content_hash(SALT, said.kind, said.subject, canonical_json(said.document))
        link = Link(epoch="0-" + "c0" * 16, number=number, previous=head.hash)
        entries.append(Shown(**link.model_dump(), content=content, statement=said))
        head = head_of(entries[-1])
    return entries


def head_of(entry: Shown) -> Head:
    return Head(entry.number, entry.hash)


JOURNAL = journal()


def exported(entries: Sequence[Shown], head: Any = None) -> dict[str, Any]:
    """Return what `shoal ledger agent` prints with --json."""
    lines = [each.model_dump(mode="json") for each in entries]
    end = (head_of(entries[-1]) if entries else EMPTY)._asdict() if head is None else head
    return {"entries": lines, "head": end, "spent": {"clients": 12}}


def verify(path: Path, value: Any) -> Result:
    file = path / "ledger.json"
    file.write_text(json.dumps(value))
    return run("ledger", "verify", file)


def test_a_whole_journal_holds_and_one_that_was_changed_does_not(tmp_path: Path) -> None:
    found = verify(tmp_path, exported(JOURNAL))
    assert (found.exit_code, "one unbroken chain of 3 entries" in found.output) == (0, True)
    found = verify(tmp_path, exported([]))
    assert (found.exit_code, "one unbroken chain of 0 entries" in found.output) == (0, True)
    said = JOURNAL[1].statement
    assert said is not None
    changed = JOURNAL[1].model_copy(
        update={"statement": said.model_copy(update={"document": {"slots": "x"}})}
    )
    for entries in ([JOURNAL[0], JOURNAL[2]], [JOURNAL[0], changed, JOURNAL[2]]):
        found = verify(tmp_path, exported(entries))
        assert (found.exit_code, "the journal does not hold" in found.output) == (1, True)


@pytest.mark.parametrize(
    "head",
    [
        head_of(JOURNAL[2]),
        head_of(JOURNAL[0]),
        Head(2, JOURNAL[0].hash),
        Head(3, JOURNAL[1].hash),
    ],
)
def test_a_journal_that_does_not_end_at_its_head_does_not_hold(tmp_path: Path, head: Head) -> None:
    found = verify(tmp_path, exported(JOURNAL[:2], head._asdict()))
    assert found.exit_code == 1
    assert "the head beside the entries is not the last of them, 2" in found.output
    assert "unbroken" not in found.output


def test_a_file_without_an_end_is_not_read_until_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LARGEST_FILE", 2 << 20)
    found = run("ledger", "verify", "/dev/zero")
    assert (found.exit_code, "/dev/zero has more than 2 MiB" in found.output) == (1, True)
    found = run("ledger", "verify", "-", typed=b"0" * (3 << 20))
    assert (found.exit_code, "piped in has more than 2 MiB" in found.output) == (1, True)
