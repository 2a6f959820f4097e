"""What is wrong with how a consortium is set up shows in its manifest, in plain words."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from nacl.signing import SigningKey

from shoal_consortium.deployment import Finding, Severity, check
from shoal_consortium.parties import first_manifest
from shoal_consortium.party_files import PartyKeys, entry_of, new_party
from shoal_protocol.trust.manifest import ComputeParty, Manifest
from shoal_protocol.trust.policy import Policy
from shoal_protocol.trust.roster_changes import roster_of
from tests.world.chance import fixed_bytes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VALID_DAYS = 365
POLICY = Policy(
    minimum_cohort=50,
    minimum_colluders=5,
    colluding_holders=1,
    minimum_holders=3,
    maximum_epsilon=3.0,
    delta=1e-6,
    mechanisms=("discrete_gaussian",),
    queries=("second_moments",),
    maximum_round_seconds=60,
)
AUTHORITY = SigningKey(b"a" * 32)
RANDOM = fixed_bytes("deployment")
CLIENTS = [SigningKey(RANDOM(32)).verify_key for _ in range(60)]


@cache
def party(role: str, name: str, operator: str, host: str) -> PartyKeys:
    return new_party(
        role,
        name=name,
        operator=operator,
        url=None if role == "analyst" else f"https://{host}:8443",
        extra_hosts=(),
        now=NOW,
        valid_days=VALID_DAYS,
        random_bytes=RANDOM,
    )


def manifest(nodes: int = 3, clients: int = 60, **policy: Any) -> Manifest:
    """Return the manifest of organisations that have nothing in common."""
    parties = [
        *(
            party("compute", f"node-{k}", f"Hospital {k}", f"sums.hospital{k}.org")
            for k in range(nodes)
        ),
        party("aggregator", "sums", "University", "sums.university.edu"),
        party("trainer", "model", "Institute", "model.institute.org"),
        party("analyst", "ada", "Institute of Ada", ""),
    ]
    return first_manifest(
        "trial",
        [each.card for each in parties],
        roster=roster_of((key, 1) for key in CLIENTS[:clients]),
        policy=POLICY.model_copy(update=policy),
        authority=AUTHORITY,
    ).body


def with_nodes(change: Callable[[int, ComputeParty], dict[str, Any]], nodes: int = 3) -> Manifest:
    """Return the manifest with each node's entry changed."""
    good = manifest(nodes)
    changed = tuple(
        node.model_copy(update=change(index, node)) for index, node in enumerate(good.compute_nodes)
    )
    return good.model_copy(update={"compute_nodes": changed})


def moved(*hosts: str) -> Manifest:
    """Return the manifest with the first nodes on these hosts, with certificates for them."""
    good = manifest()
    nodes = [
        party("compute", f"node-{k}", f"Hospital {k}", host).card for k, host in enumerate(hosts)
    ]
    listed = [entry_of(node) for node in nodes]
    rest = good.compute_nodes[len(listed) :]
    return good.model_copy(update={"compute_nodes": (*listed, *rest)})


def only(found: list[Finding]) -> Finding:
    [finding] = found
    return finding


@pytest.mark.parametrize("spelling", ["Hospital 0", "  hospital   0 ", "HOSPITAL 0"])
def test_compute_nodes_of_one_operator_are_found_however_it_is_spelt(spelling: str) -> None:
    shared = with_nodes(lambda k, node: {"operator": spelling} if k == 1 else {})
    finding = only(check(shared, now=NOW))
    assert (finding.severity, finding.subject) == (Severity.SERIOUS, "node-0, node-1")
    assert "one operator" in finding.problem


def test_compute_nodes_on_one_host_are_found_whatever_their_ports() -> None:
    finding = only(check(moved("one.org", "one.org", "two.org"), now=NOW))
    assert (finding.severity, finding.subject) == (Severity.SERIOUS, "node-0, node-1")
    assert "one host" in finding.problem


@pytest.mark.parametrize(
    "hosts",
    [
        ("a.cloud.net", "b.cloud.net"),
        ("192.0.2.10", "192.0.2.200"),
        ("2001:db8::1", "2001:db8::ffff"),
    ],
)
def test_compute_nodes_under_one_domain_or_network_are_a_reason_to_ask(hosts: Any) -> None:
    bracketed = [f"[{host}]" if ":" in host else host for host in hosts]
    finding = only(check(moved(*bracketed), now=NOW))
    assert (finding.severity, finding.subject) == (Severity.CAUTION, "node-0, node-1")


def test_compute_nodes_with_one_tls_key_are_found() -> None:
    shared = with_nodes(
        lambda k, node: {"certificate": manifest().compute_nodes[0].certificate} if k == 1 else {}
    )
    found = check(shared, now=NOW)
    assert {each.severity for each in found} == {Severity.SERIOUS}
    assert [each.subject for each in found] == ["node-0, node-1", "node-1"]
    assert "one TLS key" in found[0].problem and "not for the host" in found[1].problem


@pytest.mark.parametrize(
    ("days", "severity", "words"),
    [
        (-2, Severity.SERIOUS, "valid from"),
        (VALID_DAYS - 61, None, ""),
        (VALID_DAYS - 59, Severity.CAUTION, "expires in 59 days"),
        (VALID_DAYS, Severity.SERIOUS, "expired on 2027-01-01"),
    ],
)
def test_certificates_that_are_not_valid_or_not_for_long_are_found(
    days: int, severity: Severity | None, words: str
) -> None:
    found = check(manifest(), now=NOW + timedelta(days=days))
    assert len(found) == (0 if severity is None else 5)  # of three nodes, aggregator, trainer
    assert all(each.severity is severity and words in each.problem for each in found)


def test_aggregator_and_trainer_of_one_operator_are_found() -> None:
    good = manifest()
    trainer = good.trainer.model_copy(update={"operator": good.aggregator.operator})
    finding = only(check(good.model_copy(update={"trainer": trainer}), now=NOW))
    assert (finding.severity, finding.subject) == (Severity.CAUTION, "sums, model")
    assert "one operator" in finding.problem
