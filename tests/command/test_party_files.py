"""Files of parties and consortia: private where they must be, never overwritten, never half."""

import stat

import pytest

from shoal_agent import client_files
from shoal_agent.client_files import Enrolment, read_enrolment
from shoal_consortium import consortium_files, party_files
from shoal_consortium.parties import next_manifest
from shoal_consortium.party_files import new_party
from shoal_holder.keys import read_holder_key
from shoal_kit import startup
from shoal_kit.manifest_chain import open_chain
from shoal_kit.private_files import write_new
from shoal_kit.startup import StartupRefused, replace
from shoal_protocol.trust.roster_changes import with_revoked
from tests.command.test_consortium_building import (
    AUTHORITY,
    NOW,
    consortium,
    counted,
    keys,
)
from tests.world.strategies import flipped


def party(role="compute"):
    return new_party(
        role,
        name="compute-0",
        operator="St. Mary",
        url=None if role == "analyst" else "https://127.0.0.1:8440",
        extra_hosts=["localhost"],
        now=NOW,
        valid_days=1,
        random_bytes=counted,
    )


def files(directory) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def stored(directory):
    made = consortium(3)
    consortium_files.create(directory, made.signed_manifest, made.roster)
    return made


def test_a_replacement_that_fails_leaves_the_old_content(tmp_path, monkeypatch) -> None:
    path = tmp_path / "file"
    replace(path, b"first")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(startup.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace(path, b"second")
    assert files(tmp_path) == {"file": b"first"}


def test_private_files_of_a_party_are_private_and_its_card_is_not(tmp_path) -> None:
    home = tmp_path / "compute-0"
    party_files.write_party(home, party())
    modes = {path.name: path.stat().st_mode & 0o777 for path in home.iterdir()}
    assert modes == {
        "signing.key": 0o600,
        "box.key": 0o600,
        "tls.key": 0o600,
        "tls.crt": 0o644,
        "card.json": 0o644,
    }
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_party_is_written_completely_or_not_at_all(tmp_path, monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(party_files, "write_new", broken)
    with pytest.raises(OSError, match="No space left"):
        party_files.write_party(tmp_path / "compute-0", party())
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_replaced_only_if_it_is_an_empty_directory(tmp_path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for name, says in (("file", "exists already"), ("link", "cannot be replaced")):
        with pytest.raises(FileExistsError, match=says):
            party_files.write_party(tmp_path / name, party())
    assert sorted(tmp_path.iterdir()) == [tmp_path / each for each in ("empty", "file", "link")]
    party_files.write_party(tmp_path / "empty", party())
    with pytest.raises(FileExistsError, match="exists already"):
        party_files.write_party(tmp_path / "empty", party())


def test_an_authority_s_key_is_written_into_the_empty_disk_that_is_named(tmp_path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    before = disk.stat().st_ino
    party_files.make_authority_directory(disk, AUTHORITY)
    assert disk.stat().st_ino == before and stat.S_IMODE(disk.stat().st_mode) == 0o700
    assert list(files(disk)) == ["signing.key"]
    with pytest.raises(FileExistsError, match="exists already"):
        party_files.make_authority_directory(disk, AUTHORITY)


def test_a_data_holders_key_is_private_and_its_enrolment_is_of_it(tmp_path) -> None:
    [made], path = keys(1), tmp_path / "holder.key"
    enrolment = client_files.write_holder_key(path, made, slots=7)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_holder_key(path) == made
    assert read_enrolment(enrolment) == Enrolment.by(made, slots=7)
    before = files(tmp_path)
    with pytest.raises(FileExistsError):
        client_files.write_holder_key(path, keys(1)[0], slots=7)
    assert files(tmp_path) == before
    assert read_enrolment(client_files.grow(path, slots=9)) == Enrolment.by(made, slots=9)
    with pytest.raises(ValueError, match="slots"):
        client_files.grow(path, slots=0)
    assert read_enrolment(enrolment).slots == 9


@pytest.mark.parametrize(
    "content", ["", "ab" * 31, "ab" * 33, "xy" * 32, "ab" * 32 + "\n" * 2 + "ab"]
)
def test_what_is_no_key_is_not_shown(tmp_path, content) -> None:
    path = tmp_path / "holder.key"
    write_new(path, content.encode(), private=True)
    with pytest.raises(ValueError, match="is not a key of 64 hex digits") as refusal:
        read_holder_key(path)
    assert not content or content not in str(refusal.value)


def test_a_key_that_others_may_read_is_refused(tmp_path) -> None:
    authority = tmp_path / "authority"
    party_files.make_authority_directory(authority, AUTHORITY)
    (authority / "signing.key").chmod(0o640)
    with pytest.raises(StartupRefused, match="chmod 600"):
        party_files.read_signing_key(authority / "signing.key")


def test_a_pin_changes_only_on_request(tmp_path) -> None:
    first, second = "ab" * 32, "cd" * 32
    client_files.write_pin(tmp_path, first, replace_other=False)
    client_files.write_pin(tmp_path, first, replace_other=False)
    with pytest.raises(ValueError, match="another digest"):
        client_files.write_pin(tmp_path, second, replace_other=False)
    assert (tmp_path / "pin").read_text() == first + "\n"
    client_files.write_pin(tmp_path, second, replace_other=True)
    assert (tmp_path / "pin").read_text() == second + "\n"


@pytest.mark.parametrize(
    "stop_after", ["history/000002-roster.bin", "history/000002-manifest.json"]
)
def test_a_crash_while_a_version_is_added_leaves_a_whole_chain(
    tmp_path, monkeypatch, stop_after
) -> None:
    first = stored(tmp_path)
    revoked = with_revoked(first.roster, [0])
    signed = next_manifest(first, roster=revoked, authority=AUTHORITY)

    class Crash(BaseException):
        pass

    def crashing(write):
        def wrapped(path, *arguments, **options):
            write(path, *arguments, **options)
            if str(path).endswith(stop_after):
                raise Crash

        return wrapped

    monkeypatch.setattr(consortium_files, "write_new", crashing(write_new))
    monkeypatch.setattr(consortium_files, "replace", crashing(replace))
    with pytest.raises(Crash):
        consortium_files.add_version(tmp_path, signed, revoked)
    monkeypatch.undo()

    chain = open_chain(tmp_path)
    if len(chain) == 1:
        consortium_files.add_version(tmp_path, signed, revoked)
    consortium_files.repair(tmp_path)
    assert open_chain(tmp_path)[-1].digest == signed.digest
    assert (tmp_path / "manifest.json").read_bytes() == signed.encode()
    assert (tmp_path / "roster.bin").read_bytes() == revoked.encode()


def test_a_chain_must_hold_the_version_that_was_pinned(tmp_path) -> None:
    first = stored(tmp_path)
    assert open_chain(tmp_path, pin=first.digest)[0].digest == first.digest
    with pytest.raises(ValueError, match="pinned"):
        open_chain(tmp_path, pin="00" * 32)


def test_a_version_that_was_tampered_with_is_found_out(tmp_path) -> None:
    stored(tmp_path)
    roster = tmp_path / "history" / "000001-roster.bin"
    roster.write_bytes(flipped(roster.read_bytes(), -1))
    with pytest.raises(ValueError, match="roster"):
        open_chain(tmp_path)
