"""Changes of a consortium's parties, policy and authority: each makes the manifest that follows."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from nacl.signing import SigningKey, VerifyKey

from shoal_consortium.cards import Card, fingerprint, is_endorsed
from shoal_consortium.parties import following, next_manifest
from shoal_protocol.trust.manifest import (
    AUTHORITY_NAME,
    Analyst,
    AuthorityMove,
    ComputeParty,
    Consortium,
    Manifest,
    ServiceParty,
)
from shoal_protocol.trust.policy import Policy, all_but_one
from shoal_protocol.trust.succession import may_be_emergency, move_message
from shoal_protocol.wire.documents import Signed, sign


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
    `emergency` says why too few Compute nodes are left to sign the log. A card of
    another name adds a Compute node or an analyst, or takes the place of aggregator or trainer.

    Raises:
        ValueError: a card is not vouched for, has another role than before or a key that was
            replaced or retired; or a name is not there to retire; or nothing would change.
    """
    current = chain[-1]
    manifest = current.manifest
    nodes = {each.name: each for each in manifest.compute_nodes}
    analysts = {each.name: each for each in manifest.analysts}
    single = {"aggregator": manifest.aggregator, "trainer": manifest.trainer}
    _refuse_old_keys(chain, cards := list(cards))
    for card in cards:
        _check_vouched(current, card, fingerprints)
        fields = card.model_dump(exclude={"role", "endorsements"})
        if card.role == "compute":
            nodes[card.name] = ComputeParty(**fields)
        elif card.role == "analyst":
            analysts[card.name] = Analyst(**fields)
        else:
            single[card.role] = ServiceParty(**fields)
    for name in retired:
        if nodes.pop(name, None) is None and analysts.pop(name, None) is None:
            raise ValueError(
                f"there is no Compute node or analyst {name} to retire; aggregator and trainer are "
                "replaced by a card"
            )
    before = manifest.policy.model_dump()
    if manifest.policy.cosignatures == all_but_one(len(manifest.compute_nodes)):
        before["cosignatures"] = all_but_one(len(nodes))
    rules = Policy.model_validate(before | dict(policy or {}))
    changes: dict[str, Any] = {
        "compute_nodes": tuple(nodes.values()),
        "analysts": tuple(analysts.values()),
        **single,
        "policy": rules,
    }
    if all(getattr(manifest, name) == value for name, value in changes.items()):
        raise ValueError("nothing would change: no new version was signed")
    following = next_manifest(current, authority=authority, **changes, emergency=emergency)
    if emergency is not None and not may_be_emergency(manifest, following.body):
        raise ValueError("enough Compute nodes stay to sign the log: this is no emergency")
    return following


def _check_vouched(current: Consortium, card: Card, fingerprints: Collection[str]) -> None:
    if not current.lists(card.name):
        return  # a new party, whose card the authority compares as it did when it founded
    listed, manifest = current.party(card.name), current.manifest
    roles = {manifest.aggregator.name: "aggregator", manifest.trainer.name: "trainer"}
    usual = "compute" if isinstance(listed, ComputeParty) else "analyst"
    if card.role != roles.get(card.name, usual):
        raise ValueError(f"{card.name} has another role in the manifest than on its card")
    if type(listed).model_validate(card.model_dump(exclude={"role", "endorsements"})) == listed:
        return  # it is in force already, and changes nothing
    if not is_endorsed(card, listed.verify_key) and fingerprint(card) not in fingerprints:
        raise ValueError(
            f"the card of {card.name} is not signed by the key in force. If that is lost, compare "
            "the card's fingerprint with a person whom you know, and add --fingerprint with it"
        )


def _refuse_old_keys(chain: Sequence[Consortium], cards: Iterable[Card]) -> None:
    """Refuse keys and certificates that an earlier version listed and the newest does not."""
    in_force = _public(chain[-1])
    earlier = {each for version in chain[:-1] for each in _public(version)} - in_force
    for card in cards:
        named = {card.model_dump().get(each) for each in ("verify_key", "box_key", "certificate")}
        if named & earlier:
            raise ValueError(
                f"the card of {card.name} has a key that was replaced or retired, which is for good"
            )


def _public(version: Consortium) -> set[str]:
    manifest = version.manifest
    nodes = manifest.compute_nodes
    services = (*nodes, manifest.aggregator, manifest.trainer)
    return {
        *(each.verify_key for each in services),
        *(each.verify_key for each in manifest.analysts),
        *(each.certificate for each in services),
        *(each.box_key for each in nodes),
    }


def moved(
    current: Consortium, *, consent: SigningKey, authority: SigningKey, recovery: VerifyKey | None
) -> Signed[Manifest]:
    """Return the version that changes the authority's keys and nothing else.

    `consent` is the authority's key in force, or the recovery key; `authority` signs from then on,
    and `recovery` may stand in for it.

    Raises:
        ValueError: `consent` is neither key, or no key would change.
    """
    manifest, given = current.manifest, bytes(consent.verify_key).hex()
    if given not in (manifest.authority, manifest.recovery):
        raise ValueError("this is neither the authority's key nor the recovery key")
    keys = {
        "authority": bytes(authority.verify_key).hex(),
        "recovery": None if recovery is None else bytes(recovery).hex(),
    }
    if keys == {"authority": manifest.authority, "recovery": manifest.recovery}:
        raise ValueError("no key would change")
    draft = following(current, keys | {"founder": manifest.identity})
    move = AuthorityMove(
        by="authority" if given == manifest.authority else "recovery",
        signature=consent.sign(move_message(draft)).signature.hex(),
    )
    return sign(draft.model_copy(update={"move": move}), AUTHORITY_NAME, authority)
