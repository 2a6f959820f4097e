"""The `shoal` command as people use it: what it makes, what it prints, and how it refuses."""

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import Result

from shoal_agent.client_files import Enrolment, read_enrolment
from shoal_consortium.party_files import read_signing_key
from shoal_holder.backup import sealed_backup
from shoal_holder.keys import read_holder_key
from shoal_holder.site_files import STATE_FILE, owner_files_of
from shoal_holder.state import State
from shoal_kit.manifest_chain import open_chain
from shoal_kit.party import check_party, load_party
from shoal_kit.startup import read_pin
from shoal_protocol.trust.roster import key_fingerprint
from tests.command.running import refused, shoal

POLICY = [
    "--minimum-cohort",
    "3",
    "--minimum-colluders",
    "1",
    "--maximum-epsilon",
    "2",
    "--delta",
    "1e-6",
]
ROLES = {
    "node-a": "compute",
    "node-b": "compute",
    "sums": "aggregator",
    "model": "trainer",
    "ada": "analyst",
}


def new_party(parent: Path, name: str, *options: object, status: int = 0) -> Result:
    role = ROLES[name]
    address = [] if role == "analyst" else ["--url", "https://127.0.0.1:8440"]
    arguments = ["--role", role, "--name", name, "--operator", f"{name} Ltd", *address, *options]
    return shoal("party", "new", parent / name, *arguments, status=status)


def cards(parent: Path) -> list[object]:
    return [part for name in ROLES for part in ("--card", parent / name / "card.json")]


@pytest.fixture
def parties(tmp_path) -> Path:
    for name in ROLES:
        new_party(tmp_path, name)
    return tmp_path


@pytest.fixture
def consortium(parties) -> Path:
    shoal("agent", "new", parties / "clinic", "--slots", 4)
    arguments = ["--authority", parties / "authority", "--name", "trial", *cards(parties), *POLICY]
    enrolment = ["--holder", parties / "clinic" / "holder.key.enrolment"]
    shoal("consortium", "create", parties / "consortium", *arguments, *enrolment)
    return parties / "consortium"


def described(consortium: Path) -> dict[str, object]:
    shown: dict[str, object] = json.loads(shoal("consortium", "show", consortium, "--json").stdout)
    return shown


def test_organisations_make_their_parties_and_the_services_accept_the_consortium(
    consortium,
) -> None:
    digest = described(consortium)["digest"]
    for name in ROLES:
        home = consortium.parent / name
        shoal("party", "pin", home, digest, "--consortium", consortium)
        assert read_pin(home) == digest
        check_party(load_party(home), open_chain(consortium, pin=str(digest))[0])


def test_the_authority_enrols_and_revokes_and_the_chain_holds(consortium) -> None:
    home = consortium.parent
    shoal("agent", "new", home / "more", "--slots", 2)
    authority = ["--authority", home / "authority"]
    more = home / "more" / "holder.key.enrolment"
    assert "slots, 4 to 5" in shoal("consortium", "enrol", consortium, more, *authority).stdout
    assert "as many slots already" in refused("consortium", "enrol", consortium, more, *authority)
    shoal("agent", "grow", home / "more", "--slots", 5)
    assert "slots, 6 to 8" in shoal("consortium", "enrol", consortium, more, *authority).stdout
    clinic = home / "clinic" / "holder.key.enrolment"
    shoal("consortium", "revoke", consortium, clinic, *authority)
    assert "revoked already" in refused("consortium", "revoke", consortium, clinic, *authority)
    nobody = ["consortium", "revoke", consortium, "0" * 32, *authority]
    assert "no such data holder" in refused(*nobody)
    chain = open_chain(consortium)
    assert [len(version.roster) for version in chain] == [4, 6, 9, 9]
    assert list(chain[-1].roster.enrolled_set) == [4, 5, 6, 7, 8]
    assert described(consortium)["slots"] == {"enrolled": 5, "revoked": 4}
    assert described(consortium)["holders"] == 2


def test_a_holder_changes_its_key_and_keeps_its_slots(consortium) -> None:
    home = consortium.parent
    authority = ["--authority", home / "authority"]
    clinic = home / "clinic"
    old = read_holder_key(clinic / "holder.key")
    shoal("agent", "rotate", clinic)
    new = read_holder_key(clinic / "holder.key.next")
    assert read_holder_key(clinic / "holder.key") == old
    assert (clinic / "holder.key.next").stat().st_mode & 0o777 == 0o600
    shoal("agent", "rotate", clinic)  # again: the same key
    shoal("agent", "grow", clinic, "--slots", 6)
    enrolment = clinic / "holder.key.enrolment"
    asked = read_enrolment(enrolment)
    assert asked == Enrolment.by(new, slots=6, replaces=old)
    said = shoal("consortium", "enrol", consortium, enrolment, *authority).stdout
    names = [key_fingerprint(bytes(each.verify_key)) for each in (new, old)]
    assert "Data holder {}: in place of {}; enrolled 2 slots, 4 to 5.".format(*names) in said
    roster = open_chain(consortium)[-1].roster
    assert roster.holder_with(new.verify_key) == 0 and roster.holder_with(old.verify_key) is None
    assert list(roster.slots_of(0)) == [0, 1, 2, 3, 4, 5]
    assert "as many slots already" in refused(
        "consortium", "enrol", consortium, enrolment, *authority
    )


def test_a_state_that_is_lost_is_superseded_by_the_recovery_key_s_backup_or_a_new_one(
    consortium,
) -> None:
    home = consortium.parent
    clinic, data, key, backup = (home / each for each in ("clinic", "data", "key", "backup"))
    shoal("party", "pin", clinic, open_chain(consortium)[0].digest, "--consortium", consortium)
    where = ["--agent", clinic, "--consortium", consortium]
    shoal("agent", "restore", *where, "--data", data)  # which makes a state
    shoal("agent", "recovery-key", clinic, "--out", key)
    assert "exists already" in refused("agent", "recovery-key", clinic, "--out", home / "other")
    assert key.stat().st_mode & 0o777 == 0o600
    authority = open_chain(consortium)[0].manifest.identity
    with closing(State(data / STATE_FILE, authority=authority)) as state:
        backup.write_bytes(
            sealed_backup(
                state.file,
                owner_files_of(clinic, clinic / "policy.toml"),
                slots=0,
                authority=authority,
                key=read_holder_key(clinic / "holder.key"),
                now=datetime.now(UTC),
            )
        )

    opening = ["agent", "restore", *where, "--backup", backup]
    assert "together" in refused(*opening, "--data", home / "new")
    opening += ["--recovery-key", key]
    assert "is there" in refused(*opening, "--data", data)
    assert json.loads(shoal(*opening, "--data", home / "new", "--json").stdout)["epoch"] == 2
    assert "another data holder" in foreign(consortium, opening)


def foreign(consortium, opening) -> str:
    """Restore another data holder's backup; return why it is refused."""
    home = consortium.parent
    shoal("agent", "new", home / "stranger", "--slots", 4)
    digest = open_chain(consortium)[0].digest
    shoal("party", "pin", home / "stranger", digest, "--consortium", consortium)
    where = [home / "stranger" if each == home / "clinic" else each for each in opening]
    return refused(*where, "--data", home / "of-stranger")


def test_the_authority_replaces_a_lost_key_by_name_and_it_never_comes_back(consortium) -> None:
    home = consortium.parent
    authority = ["--authority", home / "authority"]
    shoal("agent", "new", home / "clinic-again", "--slots", 4)
    enrolment = home / "clinic-again" / "holder.key.enrolment"
    lost = home / "clinic" / "holder.key.enrolment"
    named = fingerprint_in(lost)  # of a key that is known here, but to nobody who has it
    said = shoal("consortium", "replace", consortium, named, enrolment, *authority).stdout
    assert f"{fingerprint_in(enrolment)}: in place of {named}.\nVersion 2" in said
    for command in (["enrol", consortium, lost], ["replace", consortium, named, lost]):
        assert "revoked or replaced" in refused("consortium", *command, *authority)
    shoal("agent", "rotate", home / "clinic")  # whoever has the lost key signs another
    assert "not on the roster" in refused("consortium", "enrol", consortium, lost, *authority)
    shoal("consortium", "revoke", consortium, named, *authority)  # by the key that it had
    shoal("agent", "new", home / "third", "--slots", 4)
    third = home / "third" / "holder.key.enrolment"
    assert "for good" in refused("consortium", "replace", consortium, named, third, *authority)
    assert "no such" in refused("consortium", "replace", consortium, "f" * 8, third, *authority)
    assert len(open_chain(consortium)) == 3


@pytest.mark.parametrize("slots", [4, 6])
def test_no_version_is_signed_to_replace_a_key_by_itself(consortium, slots: int) -> None:
    before = contents(consortium)
    key = read_holder_key(consortium.parent / "clinic" / "holder.key")
    again = consortium.parent / "again"
    again.write_bytes(Enrolment.by(key, slots=slots).encode())
    authority = ["--authority", consortium.parent / "authority"]
    said = refused("consortium", "replace", consortium, again, again, *authority)
    assert "the data holder has this key" in said
    assert "`shoal agent new`" in said
    assert contents(consortium) == before


def fingerprint_in(enrolment: Path) -> str:
    return key_fingerprint(bytes(read_enrolment(enrolment).key))


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_private_key_file_is_never_taken_for_an_enrolment(consortium) -> None:
    home = consortium.parent
    shoal("agent", "new", home / "more", "--slots", 2)
    key = home / "more" / "holder.key"
    line = refused("consortium", "enrol", consortium, key, "--authority", home / "authority")
    assert "private key file" in line and "holder.key.enrolment" in line
    create = ["consortium", "create", home / "other", "--authority", home / "other-authority"]
    options = ["--name", "trial", *cards(home), *POLICY, "--holder", key]
    assert "private key file" in refused(*create, *options)
    assert not (home / "other").exists()
    assert len(open_chain(consortium)) == 1


def test_no_secret_is_ever_printed(tmp_path) -> None:
    printed = [
        new_party(tmp_path, "node-a"),
        shoal("agent", "new", tmp_path / "agent", "--slots", 1),
        shoal("agent", "grow", tmp_path / "agent", "--slots", 9),
        shoal("quickstart", tmp_path / "all", "--clients", "site=1"),
        shoal("quickstart", tmp_path / "all", "--if-missing", "--json"),
    ]
    text = "".join(result.output for result in printed)
    secrets = [path for path in tmp_path.rglob("*.key") if path.name != "tls.key"]
    assert len(secrets) >= 10
    for path in secrets:
        assert path.read_text().strip() not in text
    assert "PRIVATE KEY" not in text


def test_quickstart_makes_a_federation_whose_parties_pass_their_own_checks(tmp_path) -> None:
    home = tmp_path / "all"
    made = shoal("quickstart", home, "--compute", 4, "--clients", "north=3", "--clients", "south=2")
    assert "trying out only" in made.stderr
    [first] = open_chain(home / "consortium")
    assert (len(first.manifest.compute_nodes), len(first.roster)) == (4, 5)
    keys = [
        read_signing_key(home / each / "signing.key")
        for each in ("authority", "authority-recovery")
    ]
    assert [first.manifest.authority, first.manifest.recovery] == [
        bytes(key.verify_key).hex() for key in keys
    ]
    names = [path.name for path in (home / "parties").iterdir()]
    assert len(names) == 7
    for name in names:
        party = home / "parties" / name
        assert read_pin(party) == first.digest
        check_party(load_party(party), first)
    for holder, (site, slots) in enumerate({"north": 3, "south": 2}.items()):
        asked = read_enrolment(home / "clients" / site / "holder.key.enrolment")
        assert (first.roster.holder_with(asked.key), asked.slots) == (holder, slots)
        assert len(first.roster.slots_of(holder)) == slots
    for site in ("north", "south"):
        assert read_pin(home / "clients" / site) == first.digest
