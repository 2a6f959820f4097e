"""Builds parties' keys and cards, manifests and rosters.

A party makes its own keys and hands out its card, which is public. The consortium's authority
puts the cards together into a manifest and signs it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import pydantic
from nacl.public import PrivateKey
from nacl.signing import SigningKey
from pydantic import Field, TypeAdapter

from shoal_agent.enrolment_files import Enrolment
from shoal_hosting.tls_certificates import TlsIdentity, host_of, self_signed
from shoal_protocol.trust.manifest import (
    AUTHORITY_NAME,
    Analyst,
    ComputeParty,
    Consortium,
    Manifest,
    Policy,
    RosterReference,
    ServiceParty,
)
from shoal_protocol.trust.roster import Roster
from shoal_protocol.trust.roster_changes import (
    with_enrolled,
    with_grown,
    with_key,
    with_revoked,
)
from shoal_protocol.wire.documents import Signed, describe, sign
from shoal_protocol.wire.encoding import canonical_json, sha256

RandomBytes = Callable[[int], bytes]


class PartyRole(StrEnum):
    """A party's role in a manifest."""

    COMPUTE = "compute"
    AGGREGATOR = "aggregator"
    TRAINER = "trainer"
    ANALYST = "analyst"


class ComputeCard(ComputeParty):
    """The public half of a Compute node's party directory."""

    role: Literal["compute"] = "compute"


class AggregatorCard(ServiceParty):
    """The public half of an aggregator's party directory."""

    role: Literal["aggregator"] = "aggregator"


class TrainerCard(ServiceParty):
    """The public half of a trainer's party directory."""

    role: Literal["trainer"] = "trainer"


class AnalystCard(Analyst):
    """The public half of an analyst's party directory."""

    role: Literal["analyst"] = "analyst"


Card = Annotated[
    ComputeCard | AggregatorCard | TrainerCard | AnalystCard, Field(discriminator="role")
]
_CARD: TypeAdapter[Card] = TypeAdapter(Card)


@dataclass(frozen=True)
class NewParty:
    """All that a party directory holds."""

    card: Card
    signing_key: SigningKey = field(repr=False)
    box_key: PrivateKey | None = field(repr=False)
    tls: TlsIdentity | None


def new_party(
    role: PartyRole,
    *,
    name: str,
    operator: str,
    url: str | None,
    extra_hosts: Sequence[str],
    now: datetime,
    valid_days: int,
    random_bytes: RandomBytes,
) -> NewParty:
    """Make a party's keys, its certificate if it runs a service, and its card.

    Raises:
        ValueError: a name, URL or host is malformed; a service has no URL, an analyst has one.
    """
    if (role is PartyRole.ANALYST) != (url is None):
        raise ValueError("every role but analyst needs a URL, and an analyst has none")
    key = SigningKey(random_bytes(32))
    box_key = PrivateKey(random_bytes(32)) if role is PartyRole.COMPUTE else None
    tls = None
    fields = {
        "role": role.value,
        "name": name,
        "operator": operator,
        "verify_key": bytes(key.verify_key).hex(),
    }
    if url is not None:
        hosts = [host_of(url), *extra_hosts]
        tls = self_signed(name, hosts, now=now, valid_days=valid_days)
        fields |= {"url": url, "certificate": tls.certificate_pem}
    if box_key is not None:
        fields |= {"box_key": bytes(box_key.public_key).hex()}
    return NewParty(_card(fields), key, box_key, tls)


def read_card(encoded: bytes) -> Card:
    """Read a card file.

    Raises:
        ValueError: it is not a party's card.
    """
    try:
        return _CARD.validate_json(encoded)
    except pydantic.ValidationError as error:
        raise ValueError(f"not a party's card: {describe(error)}") from error


def write_card(card: Card) -> bytes:
    """Return a card file's bytes."""
    return card.model_dump_json(indent=2).encode() + b"\n"


def fingerprint(card: Card) -> str:
    """Return the digest by which two people compare a card over the telephone."""
    return sha256("card", canonical_json(card.model_dump(mode="json")))


def _card(fields: dict[str, str]) -> Card:
    try:
        return _CARD.validate_python(fields)
    except pydantic.ValidationError as error:
        raise ValueError(describe(error)) from error


def first_manifest(
    consortium: str,
    cards: Iterable[Card],
    *,
    roster: Roster,
    policy: Policy,
    authority: SigningKey,
) -> Signed[Manifest]:
    """Put cards together into version 1 of a manifest, signed by the authority.

    Raises:
        ValueError: a role is missing or filled too often, or two parties share a name or key.
    """
    by_role: dict[str, list[dict[str, Any]]] = {role.value: [] for role in PartyRole}
    for card in cards:
        by_role[card.role].append(card.model_dump(exclude={"role"}))
    nodes, aggregators, trainers, analysts = by_role.values()
    _require("at least two Compute nodes", len(nodes) >= 2, len(nodes))
    _require("exactly one aggregator", len(aggregators) == 1, len(aggregators))
    _require("exactly one trainer", len(trainers) == 1, len(trainers))
    _require("at least one analyst", len(analysts) >= 1, len(analysts))
    try:
        manifest = Manifest.model_validate(
            {
                "consortium": consortium,
                "sequence": 1,
                "previous": None,
                "authority": bytes(authority.verify_key).hex(),
                "compute_nodes": nodes,
                "aggregator": aggregators[0],
                "trainer": trainers[0],
                "analysts": analysts,
                "roster": _reference(roster),
                "policy": policy,
            }
        )
    except pydantic.ValidationError as error:
        raise ValueError(describe(error)) from error
    return sign(manifest, AUTHORITY_NAME, authority)


def next_manifest(
    current: Consortium, *, roster: Roster, authority: SigningKey
) -> Signed[Manifest]:
    """Return the manifest version that follows `current`, with another roster.

    Raises:
        ValueError: `authority` is not the key that the manifest names.
    """
    if bytes(authority.verify_key).hex() != current.manifest.authority:
        raise ValueError("this is not the key of the authority that the manifest names")
    changed = {
        "sequence": current.manifest.sequence + 1,
        "previous": current.digest,
        "roster": _reference(roster),
    }
    manifest = Manifest.model_validate(
        {name: getattr(current.manifest, name) for name in Manifest.model_fields} | changed
    )
    return sign(manifest, AUTHORITY_NAME, authority)


def enrol(roster: Roster, asking: Sequence[Enrolment], *, earlier: Sequence[Roster] = ()) -> Roster:
    """Return `roster` with data holders that are new, have grown, or changed their keys.

    A holder on the roster gets the slots that it lacks, in a range of their own. One whose key on
    the roster signed another keeps its slots, with the other key.

    Raises:
        ValueError: there is none, one is named twice, has nothing to change, or signed with a key
            that is not on the roster; or a key was revoked or replaced.
    """
    if not asking:
        raise ValueError("there is no data holder to enrol")
    if len({bytes(each.key) for each in asking}) < len(asking):
        raise ValueError("a data holder appears twice among those to enrol")
    changed = roster
    for each in asking:
        if changed.holder_with(each.key) is None and each.replaces is not None:
            holder = changed.holder_with(each.replaces)
            if holder is None:
                raise ValueError("a new key among these replaces one that is not on the roster")
            changed = _replaced(changed, holder, each)
        else:
            changed = _enrolled(changed, each)
    return _with_no_key_of(earlier, changed, since=roster)


def replace(
    roster: Roster, holder: int, enrolment: Enrolment, *, earlier: Sequence[Roster] = ()
) -> Roster:
    """Return `roster` with another key for a data holder whose key is lost, which keeps its slots.

    The authority knows the holder by name: nothing else shows that the key is its own.

    Raises:
        ValueError: there is no such data holder, it was revoked, or the key is on the roster, or
            was revoked or replaced.
    """
    return _with_no_key_of(earlier, _replaced(roster, holder, enrolment), since=roster)


def _enrolled(roster: Roster, asking: Enrolment) -> Roster:
    holder = roster.holder_with(asking.key)
    if holder is None:
        return with_enrolled(roster, [(asking.key, asking.slots)])
    more = asking.slots - len(roster.slots_of(holder))
    if more <= 0:
        raise ValueError("a data holder among these has as many slots already")
    return with_grown(roster, holder, more)


def _replaced(roster: Roster, holder: int, asking: Enrolment) -> Roster:
    changed = with_key(roster, holder, asking.key)
    more = asking.slots - len(roster.slots_of(holder))
    return with_grown(changed, holder, more) if more > 0 else changed


def _with_no_key_of(earlier: Sequence[Roster], changed: Roster, *, since: Roster) -> Roster:
    if any(changed.takes_again(each, since=since) for each in (*earlier, since)):
        raise ValueError(
            "a key is among them that was revoked or replaced, which is for good: its data holder "
            "makes a new key"
        )
    return changed


def revoke(roster: Roster, holders: Sequence[int]) -> Roster:
    """Return `roster` with these data holders, by their indices, revoked for good.

    Raises:
        ValueError: some are not on it, or all of them are revoked already.
    """
    shorter = with_revoked(roster, holders)
    if shorter.digest == roster.digest:
        raise ValueError("these data holders are revoked already")
    return shorter


def shared_operators(manifest: Manifest) -> dict[str, list[str]]:
    """Return the operators that run several of the services, with the services' names.

    The blinding holds as long as the Compute nodes do not collude: one operator of all of them
    could. With the aggregator or trainer it is availability that hangs on one organisation.
    """
    services = [*manifest.compute_nodes, manifest.aggregator, manifest.trainer]
    counts = Counter(party.operator.casefold() for party in services)
    shared: dict[str, list[str]] = {}
    for party in services:
        if counts[party.operator.casefold()] > 1:
            shared.setdefault(party.operator, []).append(party.name)
    return shared


def _reference(roster: Roster) -> RosterReference:
    return RosterReference.of(roster)


def _require(what: str, holds: bool, found: int) -> None:
    if not holds:
        raise ValueError(f"a consortium has {what}; the cards name {found}")
