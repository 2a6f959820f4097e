"""Which version of the manifest may follow the one in force, and when a party believes it.

Believed is what a quorum of the Compute nodes in force signed a checkpoint of the log with, lest
somebody be shown another version unseen. Where fewer nodes than a quorum stay, or the aggregator is
lost, the authority may sign an emergency instead. A policy without `cosignatures` asks for none of
this.
"""

from typing import Final

from nacl.signing import VerifyKey

from shoal_protocol.log.checkpoints import LogProof, ManifestEntry, TooFewWitnesses
from shoal_protocol.trust.manifest import (
    Consortium,
    Manifest,
    Parties,
)
from shoal_protocol.wire.documents import Signed, check_signature, decode
from shoal_protocol.wire.encoding import canonical_json, domain
from shoal_protocol.wire.errors import MalformedDocument, WrongManifest

_KEYS: Final = ("authority", "recovery", "founder")


def following_version(
    current: Consortium, signed_manifest: bytes, roster: bytes, *, believe: bool = True
) -> Consortium:
    """Open the version that follows `current`; `believe` as in `announced`.

    Raises:
        WrongManifest, MalformedDocument, BadSignature: as `announced`, or of its roster.
        TooFewWitnesses, WrongProof: as `announced`.
    """
    signed = announced(current, signed_manifest, believe=believe)
    following = Consortium.opened(signed, roster)
    if not following.roster.follows(current.roster):
        raise MalformedDocument(
            "a roster only enrols, grows, revokes and changes keys; slots keep their holders"
        )
    return following


def announced(
    current: Parties, signed_manifest: bytes, *, believe: bool = True
) -> Signed[Manifest]:
    """Check the manifest of the version that follows `current`; its roster is yet to come.

    Only who makes versions, or shows them, does without `believe`.

    Raises:
        WrongManifest, MalformedDocument, BadSignature: it does not follow, is broken, forged.
        TooFewWitnesses, WrongProof: as `check_believed`.
    """
    signed = decode(signed_manifest, Manifest)
    check_successor(current, signed)
    if believe:
        check_believed(current, signed.body, signed.log_proof)
    return signed


def check_successor(current: Parties, signed: Signed[Manifest]) -> None:
    """Check all of the version that follows `current` but its roster and whether it is believed.

    Raises:
        WrongManifest, MalformedDocument, BadSignature: as `announced`.
    """
    now, later = current.manifest, signed.body
    claimed = (later.consortium, later.sequence, later.previous)
    if claimed != (now.consortium, now.sequence + 1, current.digest):
        raise WrongManifest("the manifest is not the next version of the one in force")
    check_authority(now, later)
    Parties.of(signed, authority=later.authority)


def move_message(later: Manifest) -> bytes:
    """Return what the key signs that consents to a version's `authority` and `recovery`."""
    named = ("consortium", "sequence", "previous", "authority", "recovery")
    return domain("authority_move") + canonical_json({name: getattr(later, name) for name in named})


def check_authority(now: Manifest, later: Manifest) -> None:
    """Check that the next version has the authority of the one before, or moves it as it may.

    Raises:
        MalformedDocument: other keys without a move, or a move with other changes.
        BadSignature: the version before did not consent.
    """
    move = later.move
    if move is None:
        if any(getattr(later, name) != getattr(now, name) for name in _KEYS):
            raise MalformedDocument("only a version that moves the authority changes its keys")
        return
    differ = (*_KEYS, "sequence", "previous", "move")
    same = now.model_copy(update={name: getattr(later, name) for name in differ})
    if later != same or later.identity != now.identity:
        raise MalformedDocument("a version that moves the authority changes nothing else")
    key = now.recovery if move.by == "recovery" else now.authority
    if key is None:
        raise MalformedDocument("the version before names no recovery key")
    check_signature(VerifyKey(bytes.fromhex(key)), move_message(later), move.signature)


def check_believed(now: Parties, later: Manifest, log_proof: str | None) -> None:
    """Refuse a version that is not in the log by its proof, and no emergency that may be one.

    Raises:
        TooFewWitnesses, MalformedDocument, BadSignature, WrongProof
    """
    if later.emergency is not None and not may_be_emergency(now.manifest, later):
        raise MalformedDocument("enough Compute nodes stay to sign: this is no emergency")
    if now.manifest.policy.cosignatures is None:
        return
    if later.policy.cosignatures is None:
        raise MalformedDocument("later versions must name their number of cosignatures, too")
    if log_proof is not None:
        LogProof.decode(log_proof.encode()).check(ManifestEntry.of(later), now)
    elif later.emergency is None:
        raise TooFewWitnesses("there is no proof that the log has this version of the manifest")


def may_be_emergency(now: Manifest, later: Manifest) -> bool:
    """Tell whether fewer nodes than a quorum stay, by name, or the aggregator does not."""
    later_nodes = {node.name for node in later.compute_nodes}
    staying = sum(node.name in later_nodes for node in now.compute_nodes)
    return staying < now.quorum or later.aggregator.name != now.aggregator.name
