"""Builds manifests and rosters: the consortium's authority puts parties' cards together."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pydantic
from nacl.signing import SigningKey, VerifyKey

from shoal_agent.client_files import Enrolment, read_enrolment
from shoal_consortium.cards import Card, PartyRole
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Consortium, Manifest
from shoal_protocol.trust.policy import Policy
from shoal_protocol.trust.roster import Roster, RosterReference, key_fingerprint
from shoal_protocol.trust.roster_changes import (
    with_enrolled,
    with_grown,
    with_key,
    with_revoked,
)
from shoal_protocol.wire.documents import Signed, describe, sign

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{8,32}")


def first_manifest(
    consortium: str,
    cards: Iterable[Card],
    *,
    roster: Roster,
    policy: Policy,
    authority: SigningKey,
    recovery: VerifyKey | None = None,
) -> Signed[Manifest]:
    """Put cards together into version 1 of a manifest, signed by the authority.

    Raises:
        ValueError: a role is missing or filled too often, or two parties share a name or key.
    """
    by_role: dict[str, list[dict[str, Any]]] = {role.value: [] for role in PartyRole}
    for card in cards:
        by_role[card.role].append(card.model_dump(exclude={"role", "endorsements"}))
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
                "recovery": None if recovery is None else bytes(recovery).hex(),
            }
        )
    except pydantic.ValidationError as error:
        raise ValueError(describe(error)) from error
    return sign(manifest, AUTHORITY_NAME, authority)


def next_manifest(
    current: Consortium, *, authority: SigningKey, roster: Roster | None = None, **changes: Any
) -> Signed[Manifest]:
    """Return the manifest version that follows `current`, with another roster or other `changes`.

    Raises:
        ValueError: `authority` is not the key that the manifest names, or the changes do not fit.
    """
    if bytes(authority.verify_key).hex() != current.manifest.authority:
        raise ValueError("this is not the key of the authority that the manifest names")
    reference = {} if roster is None else {"roster": _reference(roster)}
    return sign(following(current, reference | changes), AUTHORITY_NAME, authority)


def following(current: Consortium, changes: Mapping[str, Any]) -> Manifest:
    """Return the manifest that follows `current`, unsigned.

    Raises:
        ValueError: the changes do not fit.
    """
    kept = {name: getattr(current.manifest, name) for name in Manifest.model_fields}
    place = dict.fromkeys(("move", "emergency"))  # of one version alone
    place |= {"sequence": current.manifest.sequence + 1, "previous": current.digest}
    try:
        return Manifest.model_validate(kept | place | dict(changes))
    except pydantic.ValidationError as error:
        raise ValueError(describe(error)) from error


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
        ValueError: there is no such data holder, it was revoked, or the key is its own already or
            another's on the roster, or was revoked or replaced.
    """
    if roster.holder_with(enrolment.key) == holder:
        raise ValueError(
            "the data holder has this key on the roster already: no new version was signed. One"
            " that lost its key makes another with `shoal agent new`; one that asks for more "
            "slots is given them by `shoal consortium enrol`"
        )
    return _with_no_key_of(earlier, _replaced(roster, holder, enrolment), since=roster)


def holder_called(rosters: Sequence[Roster], called: str) -> int:
    """Return the index of a data holder by its key's fingerprint, or by its enrolment file's path.

    `rosters` are those of all versions, oldest first. A key that was replaced or revoked since
    names its holder, too. Eight digits of a fingerprint are enough where they are one key's.

    Raises:
        ValueError: nobody is called so, several are, or the file is no enrolment file.
    """
    if Path(called).is_file():
        asked = read_enrolment(Path(called))
        keys = [bytes(each) for each in (asked.key, asked.replaces) if each is not None]
        beginnings = [key_fingerprint(key).replace("-", "") for key in keys]
    elif _FINGERPRINT.fullmatch(beginning := "".join(called.lower().replace("-", " ").split())):
        beginnings = [beginning]
    else:
        raise ValueError(
            "a data holder is named by the fingerprint of its key, of which eight digits are "
            "enough, or by its enrolment file; `shoal consortium show` lists the fingerprints"
        )
    for beginning in beginnings:
        for roster in reversed(rosters):
            found = [
                index
                for index in range(roster.holders)
                if (key := roster.key_if_enrolled(index)) is not None
                and key_fingerprint(key).replace("-", "").startswith(beginning)
            ]
            if len(found) > 1:
                raise ValueError("several data holders' fingerprints begin so: give more digits")
            if found:
                return found[0]
    raise ValueError(
        "there is no such data holder on the roster; `shoal consortium show` lists those there are"
    )


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
