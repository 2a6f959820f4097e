"""A Compute node's signed receipt for one envelope, which whoever relays it cannot forge.

The envelope's digest binds holder, node, round and answer: its header has them.
"""

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from shoal_protocol.wire.encoding import domain
from shoal_protocol.wire.errors import BadSignature


def sign_receipt(envelope_digest: bytes, key: SigningKey) -> bytes:
    """Return the 64 bytes by which a node says that it stored an envelope durably."""
    return key.sign(domain("share_receipt") + envelope_digest).signature


def check_receipt(receipt: bytes, envelope_digest: bytes, key: VerifyKey) -> None:
    """Check that the node with this key stored the envelope.

    Raises:
        BadSignature: it did not say so.
    """
    try:
        key.verify(domain("share_receipt") + envelope_digest, receipt)
    except (BadSignatureError, ValueError):
        raise BadSignature from None
