"""A data holder's whole journal is told from one that was changed."""

from pathlib import Path

import pytest

from shoal_agent.status import checked_journal
from shoal_command import connection
from shoal_protocol.journal import EMPTY, Head, Link, Shown, ShownStatement, content_hash
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import MalformedDocument
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


def test_a_whole_journal_holds_and_one_that_was_changed_does_not() -> None:
    assert checked_journal(JOURNAL) == head_of(JOURNAL[-1])
    assert checked_journal([]) == EMPTY
    said = JOURNAL[1].statement
    assert said is not None
    changed = JOURNAL[1].model_copy(
        update={"statement": said.model_copy(update={"document": {"slots": "x"}})}
    )
    for entries in ([JOURNAL[0], JOURNAL[2]], [JOURNAL[0], changed, JOURNAL[2]]):
        with pytest.raises(MalformedDocument):
            checked_journal(entries)


def test_a_file_without_an_end_is_not_read_until_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LARGEST_FILE", 2 << 20)
    found = run("certificate", "verify", "/dev/zero", "--manifest", tmp_path / "none")
    assert (found.exit_code, "/dev/zero has more than 2 MiB" in found.output) == (1, True)
    found = run(
        *("certificate", "verify", "-", "--manifest", tmp_path / "none"), typed=b"0" * (3 << 20)
    )
    assert (found.exit_code, "piped in has more than 2 MiB" in found.output) == (1, True)
