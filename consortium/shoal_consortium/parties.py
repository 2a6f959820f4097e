"""Builds manifests and rosters: the authority's first version, and every change that follows."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nacl.signing import SigningKey, VerifyKey

from shoal_agent.client_files import Enrolment, read_enrolment
from shoal_consortium.party_files import entry_of, fingerprint, is_endorsed
from shoal_kit.party import Card
from shoal_protocol.trust.manifest import (
    AUTHORITY_NAME,
    AuthorityMove,
    ComputeParty,
    Consortium,
    Manifest,
)
from shoal_protocol.trust.policy import Policy, all_but_one
from shoal_protocol.trust.roster import Roster, RosterReference, key_fingerprint
from shoal_protocol.trust.roster_changes import (
    with_enrolled,
    with_grown,
    with_key,
    with_revoked,
)
from shoal_protocol.trust.succession import may_be_emergency, move_message
from shoal_protocol.wire.documents import Signed, sign

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
    by_role = defaultdict[str, list[Any]](list)
    for card in cards:
        by_role[card.role].append(entry_of(card))
    nodes, aggregators, trainers, analysts = (
        by_role[role] for role in ("compute", "aggregator", "trainer", "analyst")
    )
    for what, holds, parties in (
        ("at least two Compute nodes", len(nodes) >= 2, nodes),
        ("exactly one aggregator", len(aggregators) == 1, aggregators),
        ("exactly one trainer", len(trainers) == 1, trainers),
        ("at least one analyst", len(analysts) >= 1, analysts),
    ):
        if not holds:
            raise ValueError(f"a consortium has {what}; the cards name {len(parties)}")
    return sign(
        Manifest.model_validate(
            {
                "consortium": consortium,
                "sequence": 1,
                "previous": None,
                "authority": bytes(authority.verify_key).hex(),
                "compute_nodes": nodes,
                "aggregator": aggregators[0],
                "trainer": trainers[0],
                "analysts": analysts,
                "roster": RosterReference.of(roster),
                "policy": policy,
                "recovery": None if recovery is None else bytes(recovery).hex(),
            }
        ),
        AUTHORITY_NAME,
        authority,
    )


def next_manifest(
    current: Consortium, *, authority: SigningKey, roster: Roster | None = None, **changes: Any
) -> Signed[Manifest]:
    """Return the manifest version that follows `current`, with another roster or other `changes`.

    Raises:
        ValueError: `authority` is not the key that the manifest names, or the changes do not fit.
    """
    if bytes(authority.verify_key).hex() != current.manifest.authority:
        raise ValueError("this is not the key of the authority that the manifest names")
    reference = {} if roster is None else {"roster": RosterReference.of(roster)}
    return sign(following(current, reference | changes), AUTHORITY_NAME, authority)


def following(current: Consortium, changes: Mapping[str, Any]) -> Manifest:
    """Return the manifest that follows `current`, unsigned.

    Raises:
        ValueError: the changes do not fit.
    """
    kept = {name: getattr(current.manifest, name) for name in Manifest.model_fields}
    place = dict.fromkeys(("move", "emergency"))  # of one version alone
    place |= {"sequence": current.manifest.sequence + 1, "previous": current.digest}
    return Manifest.model_validate(kept | place | dict(changes))


def enrol(roster: Roster, asking: Sequence[Enrolment], *, earlier: Sequence[Roster] = ()) -> Roster:
    """Return `roster` with data holders that are new, have grown, or changed their keys.

    A holder on the roster gets the slots that it lacks, in a range of their own. One whose key on
    the roster signed another keeps its slots, with the other key.

    Raises:
        ValueError: one is named twice, has nothing to change, or signed with a key
            that is not on the roster; or a key was revoked or replaced.
    """
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


def changed(
    chain: Sequence[Consortium],
    *,
    authority: SigningKey,
    cards: Iterable[Card] = (),
    retired: Collection[str] = (),
    policy: Mapping[str, Any] | None = None,
    fingerprints: Collection[str] = (),
    emergency: str | None = None,
) -> Signed[Manifest]:
    """Return the version after the newest of `chain`, with these parties and changes of `policy`.

    A card of a party's name replaces its keys and address; it is endorsed by the key in force, or
    its fingerprint is among `fingerprints`, which the authority compared with a person.
    `emergency` says why too few Compute nodes are left to sign the version. A card of
    another name adds a Compute node or an analyst, or takes the place of aggregator or trainer.

    Raises:
        ValueError: a card is not vouched for, has another role than before or a key that was
            replaced or retired; or a name is not there to retire; or nothing would change.
    """
    current = chain[-1]
    manifest = current.manifest
    nodes: dict[str, Any] = {each.name: each for each in manifest.compute_nodes}
    analysts: dict[str, Any] = {each.name: each for each in manifest.analysts}
    single: dict[str, Any] = {"aggregator": manifest.aggregator, "trainer": manifest.trainer}
    _refuse_old_keys(chain, cards := list(cards))
    for card in cards:
        _check_vouched(current, card, fingerprints)
        if card.role in single:
            single[card.role] = entry_of(card)
        else:
            (nodes if card.role == "compute" else analysts)[card.name] = entry_of(card)
    for name in retired:
        if nodes.pop(name, None) is None and analysts.pop(name, None) is None:
            raise ValueError(
                f"there is no Compute node or analyst {name} to retire; aggregator and trainer are "
                "replaced by a card"
            )
    before = manifest.policy.model_dump()
    if manifest.policy.manifest_signatures == all_but_one(len(manifest.compute_nodes)):
        before["manifest_signatures"] = all_but_one(len(nodes))
    changes: dict[str, Any] = {
        "compute_nodes": tuple(nodes.values()),
        "analysts": tuple(analysts.values()),
        **single,
        "policy": Policy.model_validate(before | dict(policy or {})),
    }
    if all(getattr(manifest, name) == value for name, value in changes.items()):
        raise ValueError("nothing would change: no new version was signed")
    signed = next_manifest(current, authority=authority, **changes, emergency=emergency)
    if emergency is not None and not may_be_emergency(manifest, signed.body):
        raise ValueError("enough Compute nodes stay to sign: this is no emergency")
    return signed


def _check_vouched(current: Consortium, card: Card, fingerprints: Collection[str]) -> None:
    if not current.lists(card.name):
        return  # a new party, whose card the authority compares as it did when it founded
    listed, manifest = current.party(card.name), current.manifest
    roles = {manifest.aggregator.name: "aggregator", manifest.trainer.name: "trainer"}
    usual = "compute" if isinstance(listed, ComputeParty) else "analyst"
    if card.role != roles.get(card.name, usual):
        raise ValueError(f"{card.name} has another role in the manifest than on its card")
    if entry_of(card) == listed:
        return  # it is in force already, and changes nothing
    if not is_endorsed(card, listed.verify_key) and fingerprint(card) not in fingerprints:
        raise ValueError(
            f"the card of {card.name} is not signed by the key in force. If that is lost, compare "
            "the card's fingerprint with a person whom you know, and add --fingerprint with it"
        )


def _refuse_old_keys(chain: Sequence[Consortium], cards: Iterable[Card]) -> None:
    """Refuse keys and certificates that an earlier version listed and the newest does not."""
    earlier = {each for version in chain[:-1] for each in _public(version)} - _public(chain[-1])
    for card in cards:
        if {card.verify_key, card.box_key, card.certificate} & earlier:
            raise ValueError(
                f"the card of {card.name} has a key that was replaced or retired, which is for good"
            )


def _public(version: Consortium) -> set[str]:
    manifest = version.manifest
    return {
        *(each.verify_key for each in manifest.services),
        *(each.verify_key for each in manifest.analysts),
        *(each.certificate for each in manifest.services),
        *(each.box_key for each in manifest.compute_nodes),
    }


def moved(
    current: Consortium, *, consent: SigningKey, authority: SigningKey, recovery: str | None
) -> Signed[Manifest]:
    """Return the version that changes the authority's keys and nothing else.

    `consent` is the authority's key in force, or the recovery key; `authority` signs from then on,
    and the `recovery` key, its public half in hex, may stand in for it.

    Raises:
        ValueError: `consent` is neither key, or no key would change.
    """
    manifest, given = current.manifest, bytes(consent.verify_key).hex()
    if given not in (manifest.authority, manifest.recovery):
        raise ValueError("this is neither the authority's key nor the recovery key")
    keys = {"authority": bytes(authority.verify_key).hex(), "recovery": recovery}
    if keys == {"authority": manifest.authority, "recovery": manifest.recovery}:
        raise ValueError("no key would change")
    draft = following(current, keys | {"founder": manifest.identity})
    move = AuthorityMove(
        by="authority" if given == manifest.authority else "recovery",
        signature=consent.sign(move_message(draft)).signature.hex(),
    )
    return sign(draft.model_copy(update={"move": move}), AUTHORITY_NAME, authority)
