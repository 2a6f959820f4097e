"""Which version of the manifest may follow the one in force, and when a party believes it.

Believed is what a quorum of the Compute nodes in force signed a checkpoint of the log with, lest
somebody be shown another version unseen. Where fewer nodes than a quorum stay, or the aggregator is
lost, the authority may sign an emergency instead. A policy without `cosignatures` asks for none of
this. Formats: C2SP tlog-proof, tlog-cosignature, signed-note.
"""

from base64 import b64decode
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from shoal_protocol.trust.manifest import (
    Consortium,
    Manifest,
    Parties,
)
from shoal_protocol.wire.documents import Signed, check_signature, decode
from shoal_protocol.wire.encoding import canonical_json, domain
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, ProtocolError, WrongManifest

_KEYS: Final = ("authority", "recovery", "founder")


class WrongProof(ProtocolError):
    title = "The proof does not hold for this log"
    status = 422
    remedy = "Ask for a new proof; if it fails again, keep both checkpoints: the log may be forked."


class TooFewWitnesses(ProtocolError):
    title = "Too few Compute nodes signed the log's checkpoint"
    status = 409
    remedy = "Wait until more Compute nodes have signed a checkpoint of the log, and try again."


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
        check_believed(current.manifest, signed.body, signed.log_proof)
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


def check_believed(now: Manifest, later: Manifest, log_proof: str | None) -> None:
    """Refuse a version that is not in the log by its proof, and no emergency that may be one.

    Raises:
        TooFewWitnesses, MalformedDocument, BadSignature, WrongProof
    """
    if later.emergency is not None and not may_be_emergency(now, later):
        raise MalformedDocument("enough Compute nodes stay to sign: this is no emergency")
    if now.policy.cosignatures is None:
        return
    if later.policy.cosignatures is None:
        raise MalformedDocument("later versions must name their number of cosignatures, too")
    if log_proof is not None:
        check_logged(log_entry(later), log_proof, now)
    elif later.emergency is None:
        raise TooFewWitnesses("there is no proof that the log has this version of the manifest")


def may_be_emergency(now: Manifest, later: Manifest) -> bool:
    """Tell whether fewer nodes than a quorum stay, by name, or the aggregator does not."""
    later_nodes = {node.name for node in later.compute_nodes}
    staying = sum(node.name in later_nodes for node in now.compute_nodes)
    return staying < now.quorum or later.aggregator.name != now.aggregator.name


def log_entry(manifest: Manifest) -> bytes:
    """Return what the log has of a version."""
    named = ("consortium", "sequence", "previous", "digest", "kind")
    reason = {} if manifest.emergency is None else {"emergency": manifest.emergency}
    return canonical_json({name: getattr(manifest, name) for name in named} | reason)


def origin_of(manifest: Manifest) -> str:
    """Return the name of the log; another aggregator, by name, begins another log."""
    return f"shoal-log/{manifest.consortium}/{manifest.aggregator.name}"


def check_logged(entry: bytes, log_proof: str, manifest: Manifest) -> None:
    """Check that a checkpoint with this entry has the signatures of a quorum of nodes.

    Raises:
        TooFewWitnesses, MalformedDocument, BadSignature, WrongProof
    """
    try:
        head, note = log_proof.split("\n\n", 1)
        text, signatures = note.split("\n\n")
        first, index, *hashes = [line for line in head.split("\n") if line[:6] != "extra "]
        origin, size, root = text.split("\n")
        proof = [b64decode(each, validate=True) for each in hashes]
        place = int(index.removeprefix("index ")), int(size)
        top = b64decode(root, validate=True)
        signed = [line.rsplit(" ", 1) for line in signatures.splitlines()]
        lines = [(name, b64decode(each, validate=True)) for name, each in signed]
    except ValueError:
        raise MalformedDocument("a proof of the log is not written as C2SP says") from None
    if first != "c2sp.org/tlog-proof@v1" or origin != origin_of(manifest):
        raise MalformedDocument("the proof is none, or of another log")
    found = 0
    for node in manifest.compute_nodes:
        name, key = f"{origin}/{node.name}", bytes.fromhex(node.verify_key)
        key_id = sha256(f"{name}\n".encode() + b"\x04" + key).digest()[:4]
        own = [each for who, each in lines if (who, each[:4]) == (f"— {name}", key_id)]
        for each in own:
            at = int.from_bytes(each[4:12])
            try:
                message = f"cosignature/v1\ntime {at}\n{text}\n".encode()
                VerifyKey(key).verify(message, each[12:])
            except (BadSignatureError, ValueError) as error:
                raise BadSignature from error
        found += bool(own)
    if found < manifest.quorum:
        raise TooFewWitnesses(f"{found} of the Compute nodes signed; {manifest.quorum} are needed")
    check_inclusion(*place, sha256(b"\x00" + entry).digest(), proof, top)


def check_inclusion(
    index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes
) -> None:
    """Check that the tree of `size` entries with this `root` has the hash `leaf` at `index`.

    Hashes: RFC 6962, section 2.1. Check: RFC 9162, section 2.1.3.2.

    Raises:
        WrongProof
    """
    here, last, found = index, size - 1, leaf
    for each in proof:
        if last <= 0:
            raise WrongProof("the proof of inclusion is too long")
        pair = each + found if (is_right := here % 2 or here == last) else found + each
        found = sha256(b"\x01" + pair).digest()
        while is_right and not here % 2 and here:
            here, last = here >> 1, last >> 1
        here, last = here >> 1, last >> 1
    if not 0 <= index < size or last or found != root:
        raise WrongProof("the proof does not lead from the entry to the tree's root")
