"""A data holder's key and the next one beside it: which is in force, and what does not change."""

import fcntl
from contextlib import closing
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from shoal_agent.client_files import rotate, write_holder_key
from shoal_holder.keys import KeyFile, next_key_of, read_holder_key
from shoal_protocol.trust.roster_changes import roster_of, with_key

OLD, NEW = SigningKey(b"1" * 32), SigningKey(b"2" * 32)
FIRST = roster_of([(OLD.verify_key, 3)])
SECOND = with_key(FIRST, 0, NEW.verify_key)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "holder.key"
    write_holder_key(made, OLD, slots=3)
    return made


def test_the_next_key_takes_the_place_when_a_roster_has_it(path: Path) -> None:
    with closing(KeyFile(path)) as files:
        assert files.in_force(FIRST) == OLD
        rotate(path, NEW)  # while the agent runs
        assert files.in_force(FIRST) == OLD
        assert files.in_force(SECOND) == NEW
        assert files.in_force(SECOND) == NEW
        assert read_holder_key(path) == NEW and not next_key_of(path).exists()
        with pytest.raises(ValueError, match="in use"):
            KeyFile(path)
    with closing(KeyFile(path)) as files:
        assert files.in_force(SECOND) == NEW


def test_a_start_before_and_after_the_manifest_finds_the_right_key(path: Path) -> None:
    rotate(path, NEW)
    for roster, key in ((FIRST, OLD), (SECOND, NEW), (SECOND, NEW)):
        with closing(KeyFile(path)) as files:
            assert files.in_force(roster) == key


def test_keys_that_cannot_be_moved_are_used_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotate(path, NEW)

    def refuse(_: Path, to: Path) -> Path:
        raise PermissionError(str(to))

    monkeypatch.setattr(Path, "replace", refuse)
    for _ in range(2):
        with closing(KeyFile(path)) as files:
            assert files.in_force(SECOND) == NEW
            assert files.in_force(SECOND) == NEW
    assert read_holder_key(path) == OLD


def test_a_next_key_that_others_may_read_or_another_process_uses_is_refused(path: Path) -> None:
    rotate(path, NEW)
    next_key_of(path).chmod(0o644)
    with closing(KeyFile(path)) as files, pytest.raises(ValueError, match="chmod 600"):
        files.in_force(SECOND)
    next_key_of(path).chmod(0o600)
    with next_key_of(path).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with closing(KeyFile(path)) as files, pytest.raises(ValueError, match="in use"):
            files.in_force(SECOND)
