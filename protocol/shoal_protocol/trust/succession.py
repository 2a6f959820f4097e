"""Which version of the manifest may follow the one in force, and when a party believes it.

A version is believed once a quorum q of the M Compute nodes of the version before signed it as the
one version of its number: to show two histories, 2q - M of them must lie. Where fewer nodes than a
quorum stay, the authority may sign an emergency instead. A policy without `manifest_signatures`
asks for none of this.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final, Literal, Self

import pydantic
from nacl.signing import VerifyKey
from pydantic import Field

from shoal_protocol.journal import Link, Statement
from shoal_protocol.trust.manifest import (
    Consortium,
    Manifest,
    Parties,
)
from shoal_protocol.wire.documents import (
    Embedded,
    NodeDocument,
    Signed,
    check_signature,
    decode,
    describe,
)
from shoal_protocol.wire.encoding import (
    Digest,
    Place,
    VerifyKeyHex,
    canonical_json,
    domain,
    parse_canonical_json,
)
from shoal_protocol.wire.errors import (
    MalformedDocument,
    ProtocolError,
    TooFewSignatures,
    WrongManifest,
)

SIGNATURES_PATH: Final = "/v1/manifests/signatures"
"""Where a Compute node signs the next version of the manifest."""

_KEYS: Final = ("authority", "recovery", "founder")


def following_version(
    current: Consortium, signed_manifest: bytes, roster: bytes, *, believe: bool = True
) -> Consortium:
    """Open the version that follows `current`; `believe` as in `announced`.

    Raises:
        WrongManifest, MalformedDocument, BadSignature: as `announced`, or of its roster.
        TooFewSignatures: as `announced`.
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
        TooFewSignatures: as `check_believed`.
    """
    signed = decode(signed_manifest, Manifest)
    check_successor(current, signed)
    if believe:
        check_believed(current, signed.body, signed.countersignatures)
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
    if later.emergency is not None and not may_be_emergency(now, later):
        raise MalformedDocument("enough Compute nodes stay to sign: this is no emergency")
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


def check_believed(now: Parties, later: Manifest, countersignatures: str | None) -> None:
    """Refuse a version that too few nodes of the one before signed, unless it is an emergency.

    Raises:
        TooFewSignatures, MalformedDocument
    """
    if now.manifest.policy.manifest_signatures is None:
        return
    if later.policy.manifest_signatures is None:
        raise MalformedDocument("later versions must name their number of signatures, too")
    count, needed = len(countersigners(now, later, countersignatures)), now.manifest.quorum
    if later.emergency is None and count < needed:
        raise TooFewSignatures(f"{count} of the Compute nodes signed it; {needed} are needed")


def may_be_emergency(now: Manifest, later: Manifest) -> bool:
    """Tell whether fewer nodes than a quorum stay, by name."""
    later_nodes = {node.name for node in later.compute_nodes}
    staying = sum(node.name in later_nodes for node in now.compute_nodes)
    return staying < now.quorum


def lying_nodes(manifest: Manifest) -> int:
    """Return how many Compute nodes must lie for two parties to be shown two histories."""
    return 2 * manifest.quorum - len(manifest.compute_nodes)


class ManifestStatement(Statement, NodeDocument):
    """Compute -> all: this version of the manifest, and no other, follows the one in force.

    `manifest` is the version in force at the node, and `following` the one that it signs.
    """

    kind: Literal["manifest_statement"] = "manifest_statement"
    authority: VerifyKeyHex  # the consortium's first
    sequence: Place
    emergency: bool
    following: Digest

    @classmethod
    def of(cls, before: Parties, later: Manifest, *, node: str, entry: Link) -> Self:
        """Return the statement of a node of the version `before`."""
        return cls(
            manifest=before.digest,
            entry=entry,
            node=node,
            authority=later.identity,
            sequence=later.sequence,
            emergency=later.emergency is not None,
            following=later.digest,
        )

    @property
    def subject(self) -> str:
        """Return the consortium and the number of the version."""
        return subject_of(self.authority, self.sequence, emergency=self.emergency)


def subject_of(authority: str, sequence: int, *, emergency: bool) -> str:
    """Return what a statement of a version is about; an emergency is a subject of its own."""
    return f"{authority}/{sequence}" + ("/emergency" if emergency else "")


Countersignatures = Annotated[tuple[Embedded[ManifestStatement], ...], Field(max_length=255)]
_READER: Final[pydantic.TypeAdapter[tuple[Signed[ManifestStatement], ...]]] = pydantic.TypeAdapter(
    Countersignatures
)


def countersigners(now: Parties, later: Manifest, countersignatures: str | None) -> set[str]:
    """Return which Compute nodes of the version `now` signed the `later` one.

    Statements that do not hold, or of another version, count for nothing.

    Raises:
        MalformedDocument: these are no statements.
    """
    found: set[str] = set()
    for signed in statements(countersignatures):
        with suppress(ProtocolError):
            now.verify(signed)
            if signed.body.following == later.digest:
                found.add(signed.signer)
    return found


def statements(countersignatures: str | None) -> tuple[Signed[ManifestStatement], ...]:
    """Return the statements that came with a manifest, with their signatures unchecked.

    Raises:
        MalformedDocument: there is something else.
    """
    if countersignatures is None:
        return ()
    try:
        return _READER.validate_python(parse_canonical_json(countersignatures.encode()))
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error)) from None
    except UnicodeEncodeError:
        raise MalformedDocument("the statements are no text") from None


def written(signed: Sequence[Signed[ManifestStatement]]) -> str:
    """Return statements as they stand beside a manifest."""
    return canonical_json([each.to_json() for each in signed]).decode()
