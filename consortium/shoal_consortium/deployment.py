"""Checks from the manifest alone whether a consortium is set up as its protection assumes.

Pure: it contacts nobody, so it cannot see who owns a machine, where it stands, or who may log in.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from shoal_kit.tls_certificates import EXPIRES_SOON, host_of, hosts_of, validity
from shoal_protocol.trust.manifest import Manifest, ServiceParty

LARGEST_EPSILON: Final = 10.0
SMALLEST_COHORT: Final = 20
FEWEST_HOLDERS: Final = 3
_NEARBY: Final = {4: 24, 6: 64}  # bits of a network that one operator usually has to himself


@dataclass(frozen=True)
class Finding:
    """A weakness of the deployment: the parties concerned, and why it matters.

    A `serious` one breaks what the protection assumes, or stops rounds.
    """

    severity: Literal["serious", "caution"]
    subject: str
    problem: str


def check(manifest: Manifest, *, now: datetime) -> list[Finding]:
    """Return all findings, the serious ones first; none if the deployment is sound.

    Raises:
        ValueError: a party's certificate or URL cannot be read.
    """
    return sorted(
        [
            *_shared_by_nodes(manifest),
            *_near(manifest),
            *_certificates(manifest, now),
            *_policy(manifest),
        ],
        key=lambda found: found.severity != "serious",
    )


def _shared_by_nodes(manifest: Manifest) -> list[Finding]:
    """Return what Compute nodes have in common and must not, and what others share with them."""
    nodes, services = manifest.compute_nodes, manifest.services
    blinding = "the blinding assumes that Compute nodes do not put their shares together"
    common: dict[str, list[str] | list[bytes]] = {
        "are run by one operator": [_folded(node.operator) for node in nodes],
        "are on one host": [_host(node) for node in nodes],
        "use one TLS key": [_public_key(node) for node in nodes],
    }
    return [
        *(
            Finding("serious", ", ".join(names), f"{what}: {blinding}")
            for what, values in common.items()
            for names in _alike(nodes, values)
        ),
        *(
            Finding(
                "caution",
                ", ".join(names),
                "are run by one operator: this operator can also stop any round",
            )
            for names in _alike(services, [_folded(each.operator) for each in services])
            if {manifest.aggregator.name, manifest.trainer.name} & set(names)
        ),
        *(
            Finding(
                "serious",
                party.name,
                "signs with the authority's key: who runs it can change the consortium",
            )
            for party in manifest.parties
            if party.verify_key == manifest.authority
        ),
    ]


def _near(manifest: Manifest) -> list[Finding]:
    """Return hosts of Compute nodes that differ but lie close together."""
    nodes = manifest.compute_nodes
    hosts = [_host(node) for node in nodes]
    if len(set(hosts)) == 1:
        return []  # said already
    near = (
        "are under one domain or network: ask whether one organisation, or one hosting company, "
        "could read them all"
    )
    return [
        *(
            Finding("caution", ", ".join(names), near)
            for names in _alike(nodes, map(_domain, hosts))
        ),
        *(
            Finding("caution", node.name, f"is at {host}, which only its own machine can reach")
            for node, host in zip(nodes, hosts, strict=True)
            if host in ("localhost", "::1") or host.startswith("127.")
        ),
    ]


def _certificates(manifest: Manifest, now: datetime) -> Iterator[Finding]:
    for party in manifest.services:
        begins, ends = validity(party.certificate)
        hosts = {each.casefold() for each in hosts_of(party.certificate)}
        serious = {
            f"its certificate expired on {ends:%Y-%m-%d}": ends <= now,
            f"its certificate is valid from {begins:%Y-%m-%d} on": now < begins,
            "its certificate is not for the host of its URL: nobody will connect": (
                _host(party) not in hosts
            ),
        }
        for problem, is_so in serious.items():
            if is_so:
                yield Finding("serious", party.name, problem)
        if begins <= now < ends < now + EXPIRES_SOON:
            yield Finding(
                "caution",
                party.name,
                f"its certificate expires in {(ends - now).days} days: `shoal party rotate --tls` "
                "there, then `shoal consortium change` and `publish`",
            )


def _policy(manifest: Manifest) -> list[Finding]:
    policy, clients = manifest.policy, manifest.roster.clients
    nodes, lowest = len(manifest.compute_nodes), manifest.policy.minimum_threshold
    majority = nodes // 2 + 1
    loose = [
        (
            lowest is not None and lowest > nodes,
            f"minimum_threshold is {lowest}, and there are {nodes} Compute nodes: "
            "threshold sharing can never be used",
        ),
        (
            lowest is not None and lowest < majority and policy.minimum_committee is None,
            f"minimum_threshold is {lowest}, which is never used: of {nodes} Compute nodes "
            f"at least {majority} are needed anyway",
        ),
        (
            lowest is not None and 2 * max(lowest, majority) == nodes + 1,
            f"sums may be opened by {majority} of {nodes} Compute nodes: one lying node and the "
            "aggregator together can then open two cohorts of one round; "
            f"{majority + 1} would need two lying nodes",
        ),
        (
            policy.maximum_epsilon > LARGEST_EPSILON,
            f"maximum_epsilon is {policy.maximum_epsilon:g}: above {LARGEST_EPSILON:g} it promises "
            "a client very little",
        ),
        (
            policy.minimum_colluders == 0,
            "minimum_colluders is 0: a client that tells others its noise weakens everybody's "
            "protection, and no price counts it",
        ),
        (
            policy.colluding_holders == 0,
            "colluding_holders is 0: a data holder subtracts its own noise from what is published, "
            "and no price counts it",
        ),
        (
            policy.minimum_holders < FEWEST_HOLDERS,
            f"minimum_holders is {policy.minimum_holders}: with two data holders each sees what "
            "the other answered, under its noise alone",
        ),
        (
            policy.minimum_cohort < SMALLEST_COHORT,
            f"minimum_cohort is {policy.minimum_cohort}: sums over so few are mostly noise, or "
            "were bought too dearly",
        ),
        (
            policy.delta * clients > 1,
            f"delta is {policy.delta:g} for {clients:,} clients: it allows mechanisms that publish "
            "a whole client now and then; take less than 1 / clients",
        ),
        (
            clients < policy.minimum_cohort,
            f"{clients:,} clients are enrolled, fewer than minimum_cohort {policy.minimum_cohort:,}"
            ": no round can end in a result yet",
        ),
        (
            policy.minimum_colluders + 2 > policy.minimum_cohort,
            f"minimum_colluders {policy.minimum_colluders} leaves nobody to add noise in a cohort "
            f"of minimum_cohort {policy.minimum_cohort}",
        ),
    ]
    return [
        Finding("caution" if place else "serious", "policy", problem)
        for place, (is_so, problem) in enumerate(loose)  # the first one stops rounds
        if is_so
    ]


def _alike(parties: Sequence[ServiceParty], values: Iterable[object]) -> list[list[str]]:
    """Return the names of those parties, at least two, whose value is the same and not None."""
    groups: dict[object, list[str]] = {}
    for party, value in zip(parties, values, strict=True):
        groups.setdefault(value, []).append(party.name)
    return [names for value, names in groups.items() if value is not None and len(names) > 1]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _domain(host: str) -> str | None:
    """Return the domain or network that a host shares with its neighbours, None if unknown."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        labels = host.rstrip(".").split(".")
        return ".".join(labels[-2:]) if len(labels) > 2 else None
    return str(ipaddress.ip_network(f"{host}/{_NEARBY[address.version]}", strict=False))


def _host(party: ServiceParty) -> str:
    """Return a service's host, in the one way in which certificates have it, too."""
    host = host_of(party.url)
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.casefold()


def _public_key(party: ServiceParty) -> bytes:
    key = x509.load_pem_x509_certificate(party.certificate.encode()).public_key()
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
