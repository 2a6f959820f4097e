"""How the authority's key moves: old and new key sign, as of roots in TUF (section 6.1).

The recovery key, kept offline, may stand in for an old key that is lost.
"""

from typing import TYPE_CHECKING, Annotated, Final, Literal

from nacl.signing import VerifyKey
from pydantic import StringConstraints

from shoal_protocol.wire.documents import Model, check_signature
from shoal_protocol.wire.encoding import canonical_json, domain
from shoal_protocol.wire.errors import MalformedDocument

if TYPE_CHECKING:
    from shoal_protocol.trust.manifest import Manifest

_KEYS: Final = ("authority", "recovery", "founder")


class AuthorityMove(Model):
    """The consent of the version before, by one of its two keys, to other keys of the authority."""

    by: Literal["authority", "recovery"]
    signature: Annotated[str, StringConstraints(pattern="^[0-9a-f]{128}$")]


def move_message(later: "Manifest") -> bytes:
    """Return what the key signs that consents to a version's `authority` and `recovery`."""
    named = ("consortium", "sequence", "previous", "authority", "recovery")
    return domain("authority_move") + canonical_json({each: getattr(later, each) for each in named})


def check_authority(now: "Manifest", later: "Manifest") -> None:
    """Check that the next version has the authority of the one before, or moves it as it may.

    Raises:
        MalformedDocument: other keys without a move, or a move with other changes.
        BadSignature: the version before did not consent.
    """
    move = later.move
    if move is None:
        if any(getattr(later, each) != getattr(now, each) for each in _KEYS):
            raise MalformedDocument("only a version that moves the authority changes its keys")
        return
    differ = (*_KEYS, "sequence", "previous", "move")
    same = now.model_copy(update={each: getattr(later, each) for each in differ})
    if later != same or later.identity != now.identity:
        raise MalformedDocument("a version that moves the authority changes nothing else")
    key = now.recovery if move.by == "recovery" else now.authority
    if key is None:
        raise MalformedDocument("the version before names no recovery key")
    check_signature(VerifyKey(bytes.fromhex(key)), move_message(later), move.signature)
