"""A write of a mark that tears takes the mark being written, and never the one before it."""

from pathlib import Path

import pytest

from shoal_kit.marks import Mark, MarkFile
from shoal_protocol.privacy.ledger import EMPTY

NAME = "ab" * 16
SLOT_BYTES = 4096


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_torn_write_leaves_the_mark_before_however_many_commits_a_mark_covers(
    tmp_path: Path, step: int
) -> None:
    path = tmp_path / "memory"
    file = MarkFile(path)
    file.begin(Mark(NAME, 0, EMPTY))
    for commits in range(step, 9 * step, step):
        file.write(Mark(NAME, commits, EMPTY))
        before = path.read_bytes()
        file.write(Mark(NAME, commits + step, EMPTY))
        after = path.read_bytes()
        torn = 0 if before[:SLOT_BYTES] != after[:SLOT_BYTES] else SLOT_BYTES
        damaged = bytearray(after)
        damaged[torn + 64 : torn + SLOT_BYTES] = bytes(SLOT_BYTES - 64)
        other = tmp_path / f"torn-{commits}"
        other.write_bytes(damaged)
        read = MarkFile(other)
        assert read.mark == Mark(NAME, commits, EMPTY)
        read.close()
    file.close()
