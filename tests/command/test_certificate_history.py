"""Certificates from before the parties changed, checked by every version of the manifest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey
from typer.testing import Result

from shoal_consortium import consortium_files
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Consortium, Manifest
from shoal_protocol.trust.roster import Roster, RosterReference
from shoal_protocol.trust.roster_changes import with_revoked
from shoal_protocol.trust.succession import following_version
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.service_errors import RefusedCertificate
from tests.command.running import run
from tests.command.test_certificate_command import in_one_line
from tests.protocol.test_succession import NODES, NOW, following, replaced
from tests.world import examples
from tests.world.certified import (
    TWO_ROUNDS,
    Making,
    changed,
    handed_over,
    successor,
    under,
)
from tests.world.examples import signing_key
from tests.world.signatures import countersigned

FIRST = examples.CONSORTIUM


def with_nodes(before: Consortium, *nodes: Any) -> Consortium:
    kept = before.manifest.compute_nodes[:2]
    return successor(before, compute_nodes=[each.model_dump() for each in (*kept, *nodes)])


def with_roster(before: Consortium, roster: Roster) -> Consortium:
    links = {"sequence": before.manifest.sequence + 1, "previous": before.digest}
    body = before.manifest.model_dump() | links | {"roster": RosterReference.of(roster)}
    signed = sign(Manifest.model_validate(body), AUTHORITY_NAME, examples.AUTHORITY)
    return following_version(before, signed.encode(), roster.encode())


def history() -> list[Consortium]:
    """Return versions in which policy, keys, nodes, roster and the authority change."""
    chain = [FIRST]
    chain.append(successor(FIRST, policy=examples.POLICY.model_copy(update={"minimum_cohort": 9})))
    key = bytes(SigningKey(examples.seed("another key")).verify_key).hex()
    node = FIRST.manifest.compute_nodes[2].model_copy(update={"verify_key": key})
    chain.append(with_nodes(chain[-1], node))
    chain.append(with_nodes(chain[-1]))
    chain.append(with_roster(chain[-1], with_revoked(FIRST.roster, [18])))
    trainer = FIRST.manifest.trainer.model_copy(update={"verify_key": key})
    chain.append(successor(chain[-1], trainer=trainer.model_dump()))
    chain.append(handed_over(chain[-1], SigningKey(examples.seed("heir of the authority"))))
    return chain


HISTORY = history()
SIGNED = [each.signed_manifest for each in HISTORY]
CERTIFICATES: dict[str, tuple[Making, int]] = {
    "before any change": (TWO_ROUNDS, 1),
    "across a change": (Making(consortia=(FIRST, HISTORY[1])), 2),
    "after a change": (under(HISTORY[1]), 2),
    "of fewer nodes": (under(HISTORY[3]), 4),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a consortium directory with all versions."""
    made = tmp_path_factory.mktemp("history") / "consortium"
    consortium_files.create(made, FIRST.signed_manifest, FIRST.roster)
    for version in HISTORY[1:]:
        consortium_files.add_version(made, version.signed_manifest, version.roster)
    return made


def verify(making: Making, directory: Path, *more: str, by: str = "manifest.json") -> Result:
    file = directory / "certificate.json"
    file.write_bytes(making.encode())
    return run("certificate", *more, str(file), "--manifest", str(directory / by))


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_true_certificate_holds_by_the_manifest_in_force(directory: Path, name: str) -> None:
    making, bound_to = CERTIFICATES[name]
    for more in ([], ["--consortium", str(directory)]):
        result = verify(making, directory, "verify", *more)
        assert result.exit_code == 0, result.output
        said = in_one_line(result.stdout)
        assert f"Version {bound_to} of the manifest of example, digest" in said
        assert f"You gave version {len(HISTORY)}, digest {HISTORY[-1].digest}, of the same" in said
    page = directory / "page.html"
    assert verify(making, directory, "page", "--out", str(page)).exit_code == 0
    assert f"You gave version {len(HISTORY)}" in page.read_text()
    first = verify(making, directory, "verify", by="history/000001-manifest.json")
    assert first.exit_code == 0, first.output


@pytest.mark.parametrize("name", CERTIFICATES)
@pytest.mark.parametrize("place", range(len(HISTORY)))
def test_a_certificate_holds_by_every_version_and_a_forged_one_by_none(
    name: str, place: int
) -> None:
    making, bound_to = CERTIFICATES[name]
    manifest = SIGNED[place].encode()
    for held in (
        verify_certificate(making.encode(), manifest, history=SIGNED),
        verify_certificate(making.encode(), manifest, known=HISTORY),
    ):
        assert held.parties.manifest.sequence == bound_to
        assert held.trusted.digest == HISTORY[place].digest
    for lies in (
        {"sum 0 compute-1": changed(cohort_size=10)},
        {"certificate": changed(totals=())},
        {"report": changed(population_size=13)},
    ):
        with pytest.raises(RefusedCertificate):
            verify_certificate(replace(making, lies=lies).encode(), manifest, history=SIGNED)


def test_a_history_that_does_not_link_to_the_trusted_version_is_refused() -> None:
    rival = successor(FIRST, policy=examples.POLICY.model_copy(update={"minimum_cohort": 10}))
    encoded, at_hand = under(rival).encode(), [*SIGNED, rival.signed_manifest]
    assert verify_certificate(encoded, SIGNED[0].encode(), history=at_hand)
    for trusted in SIGNED[1:]:
        with pytest.raises(RefusedCertificate, match=r"version [23] of the manifest"):
            verify_certificate(encoded, trusted.encode(), history=at_hand)


def test_R8_a_version_after_the_trusted_one_must_be_signed_by_nodes_or_an_emergency() -> None:
    nodes = tuple(
        node.model_copy(update={"verify_key": bytes(signing_key(node.name).verify_key).hex()})
        for node in replaced(2)
    )
    emergency = following(compute_nodes=nodes, emergency="two sites burnt")
    for later, holds in (
        (following(), False),
        (countersigned(NOW, following()), True),
        (countersigned(NOW, following(), NODES[:1]), False),
        (emergency, True),
    ):
        version = following_version(NOW, later.encode(), NOW.roster.encode(), believe=False)
        encoded = under(version).encode()
        assert verify_certificate(encoded, later.encode(), history=[NOW.signed_manifest])
        if holds:
            assert verify_certificate(encoded, NOW.signed_manifest.encode(), history=[later])
            continue
        with pytest.raises(RefusedCertificate, match="version 2 of the manifest"):
            verify_certificate(encoded, NOW.signed_manifest.encode(), history=[later])


def kept(consortium: Consortium, directory: Path, *later: Consortium) -> Path:
    consortium_files.create(directory, consortium.signed_manifest, consortium.roster)
    for each in later:
        consortium_files.add_version(directory, each.signed_manifest, each.roster)
    return directory


def checked_by(directory: Path, encoded: bytes, trusted: bytes) -> Result:
    """Run the command with a manifest alone, and a consortium's directory elsewhere."""
    (beside := directory / "reader").mkdir(exist_ok=True)
    (beside / "certificate.json").write_bytes(encoded)
    (beside / "manifest.json").write_bytes(trusted)
    return run(
        "certificate",
        "verify",
        str(beside / "certificate.json"),
        "--manifest",
        str(beside / "manifest.json"),
        "--consortium",
        str(directory / "consortium"),
    )


def test_only_rosters_of_versions_that_link_tell_whose_slots_are_whose() -> None:
    unsigned = following_version(NOW, following().encode(), NOW.roster.encode(), believe=False)
    encoded, manifest = under(NOW).encode(), NOW.signed_manifest.encode()
    for known, tells in (((unsigned,), False), ((NOW,), True), ((NOW, unsigned), True)):
        verified = verify_certificate(encoded, manifest, known=known)
        assert (verified.holders_known, verified.all_rosters) == (tells, tells)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_copy_of_a_version_that_does_not_hold_takes_nothing_from_one_that_does(
    is_first: bool,
) -> None:
    good = countersigned(NOW, following())
    version = following_version(NOW, good.encode(), NOW.roster.encode())
    unsigned = replace(version, signed_manifest=following())
    encoded = under(version).encode()
    for copy in (following(), replace(good, signature="0" * 128)):
        for trusted in (NOW.signed_manifest, good):
            copies = [copy, good] if is_first else [good, copy]
            history = [NOW.signed_manifest, *copies]
            assert verify_certificate(encoded, trusted.encode(), history=history)
    for trusted in (NOW.signed_manifest, good):
        assert verify_certificate(
            encoded, trusted.encode(), history=[good], known=[NOW, unsigned]
        ).all_rosters
    broken = replace(NOW.signed_manifest, signature="0" * 128)
    copies = [broken, NOW.signed_manifest] if is_first else [NOW.signed_manifest, broken]
    assert verify_certificate(under(NOW).encode(), good.encode(), history=copies)
    with pytest.raises(RefusedCertificate, match="version 1 of the manifest"):
        verify_certificate(under(NOW).encode(), good.encode(), history=[broken])
