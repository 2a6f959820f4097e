"""The authority changes parties, policy and its own key; what nobody vouches for is refused."""

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from shoal_consortium.party_files import fingerprint, read_party_card, read_signing_key
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.manifest_chain import open_chain
from shoal_kit.party import load_party
from shoal_protocol.trust.manifest import Consortium
from tests.command.running import refused, run, shoal
from tests.command.test_command import consortium, new_party, parties
from tests.world.signatures import countersign_all

__all__ = ["consortium", "parties"]  # fixtures


def newest(directory: Path) -> Consortium:
    return open_chain(directory)[-1]


def change(directory: Path, *what: object) -> Consortium:
    shoal("consortium", "change", directory, "--authority", directory.parent / "authority", *what)
    return newest(directory)


def not_changed(directory: Path, *what: object) -> str:
    before = newest(directory).digest
    authority = ["--authority", directory.parent / "authority"]
    said = refused("consortium", "change", directory, *authority, *what)
    assert newest(directory).digest == before
    return said


def rotated(home: Path, *kinds: str) -> dict[str, Any]:
    return dict(json.loads(shoal("party", "rotate", home, *kinds, "--json").stdout))


def test_a_party_rotates_and_signs_by_whichever_key_a_version_lists(consortium: Path) -> None:
    home = consortium.parent / "node-a"
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    made = rotated(home)
    assert {name: (home / name).read_bytes() for name in before} == before
    assert {path.name for path in home.iterdir()} - before.keys() == {
        *("card-2.json", "signing-2.key", "box-2.key", "tls-2.key", "tls-2.crt")
    }
    first, second = newest(consortium), change(consortium, "--card", made["card"])
    party = load_party(home)
    for version in (first, second):
        listed = version.party("node-a")
        assert bytes(party.signing_key_in(version).verify_key).hex() == listed.verify_key
        assert bytes(party.box_key_in(version).public_key).hex() == listed.box_key  # type: ignore[union-attr]
        assert party.tls_in(version)[0].read_text() == listed.certificate  # type: ignore[union-attr]
    rotated(home, "--tls")
    third = change(consortium, "--card", home)
    assert "nothing would change" in not_changed(consortium, "--card", home)
    assert third.party("node-a").verify_key == second.party("node-a").verify_key


def test_a_card_that_the_key_in_force_did_not_sign_needs_its_fingerprint(consortium: Path) -> None:
    stolen = consortium.parent / "elsewhere"
    new_party(stolen, "node-a")
    card = stolen / "node-a" / "card.json"
    assert "not signed by the key in force" in not_changed(consortium, "--card", card)
    rotated(stolen / "node-a", "--signing")  # signed, by a key that was never in force
    card = stolen / "node-a" / "card-2.json"
    wrong = secrets.token_hex(32)
    assert "not signed" in not_changed(consortium, "--card", card, "--fingerprint", wrong)
    told = json.loads(shoal("party", "rotate", stolen / "node-a", "--tls", "--json").stdout)
    second = change(consortium, "--card", told["card"], "--fingerprint", told["fingerprint"])
    assert second.party("node-a").verify_key == read_party_card(stolen / "node-a").verify_key


def test_a_key_that_was_replaced_or_retired_does_not_come_back(consortium: Path) -> None:
    home = consortium.parent / "node-a"
    change(consortium, "--card", rotated(home)["card"])
    assert "for good" in not_changed(consortium, "--card", home / "card.json")
    new_party(consortium.parent / "third", "node-a")
    card = consortium.parent / "third" / "node-a" / "card.json"
    named = json.loads(card.read_text()) | {"name": "node-c"}
    card.write_text(json.dumps(named))
    change(consortium, "--card", card)
    change(consortium, "--retire", "node-c")
    assert "for good" in not_changed(consortium, "--card", card)


@pytest.mark.parametrize("by", ["authority", "authority-recovery"])
def test_the_authority_moves_and_the_old_key_changes_nothing_more(
    consortium: Path, tmp_path: Path, by: str
) -> None:
    home = consortium.parent
    founder = newest(consortium).manifest.authority
    heir, spare = home / "heir", home / "spare"
    move = ["consortium", "move-authority", consortium, "--authority", home / by, "--to", heir]
    for _ in range(2):  # the second time does nothing
        shoal(*move, *([] if spare.exists() else ["--new-recovery", spare]))
        second = newest(consortium)
        assert second.manifest.sequence == 2
    assert (second.manifest.identity, second.manifest.authority) == (
        founder,
        bytes(load_key(heir)).hex(),
    )
    assert second.manifest.recovery == bytes(load_key(spare)).hex()
    said = refused(
        "consortium",
        "change",
        consortium,
        "--authority",
        home / "authority",
        "--minimum-cohort",
        "9",
    )
    assert "not the key of the authority" in said
    shoal("consortium", "change", consortium, "--authority", heir, "--minimum-cohort", "9")
    pin = second.digest
    book = ManifestBook.open(consortium, pin, tmp_path / "data")
    assert [each.manifest.sequence for each in book.versions] == [1, 2]  # not published yet
    countersign_all(consortium, home)
    book = ManifestBook.open(consortium, pin, tmp_path / "data")
    assert [each.manifest.sequence for each in book.versions] == [1, 2, 3]


def test_too_few_nodes_left_are_an_emergency_that_everybody_is_shown(
    consortium: Path, tmp_path: Path
) -> None:
    home, nodes = consortium.parent, newest(consortium).manifest.compute_nodes
    said = not_changed(consortium, "--minimum-cohort", "9", "--emergency", "in a hurry")
    assert "no emergency" in said
    cards = []
    for number in range(len(nodes)):
        who = ["--role", "compute", "--name", f"new-{number}", "--operator", "New Ltd"]
        shoal("party", "new", home / f"new-{number}", *who, "--url", "https://127.0.0.1:8440")
        cards += ["--card", home / f"new-{number}"]
    prints = [
        each
        for number in range(len(nodes))
        for each in ("--fingerprint", fingerprint(read_party_card(home / f"new-{number}")))
    ]
    retired = [each for node in nodes for each in ("--retire", node.name)]
    for cohort in (9, 8):  # which nobody is left to sign the log for
        change(consortium, "--minimum-cohort", cohort)
    emergency = [*cards, *prints, *retired, "--emergency", "all sites burnt"]
    change_now = ["consortium", "change", consortium, "--authority", home / "authority"]
    said = shoal(*change_now, *emergency).stderr
    assert "version 2, which nobody believed, is taken back" in said and "version 3" in said
    version = newest(consortium)
    assert version.manifest.sequence == 2
    assert version.manifest.emergency == "all sites burnt"
    for what in ("show", "check"):
        printed = run("consortium", what, consortium).stdout
        assert "in an emergency: all sites burnt" in " ".join(printed.split())
    book = ManifestBook.open(consortium, open_chain(consortium)[0].digest, tmp_path / "data")
    assert book.current.digest == version.digest
    assert change(consortium, "--minimum-cohort", "9").manifest.emergency is None


def load_key(directory: Path) -> Any:
    return read_signing_key(directory / "signing.key").verify_key
