"""A proof of the log beside what is signed: a field `log_proof` of the signed document.

It is made after the document was signed, and part of neither its signature nor its digest.
"""

from typing import Final

from shoal_protocol.wire.encoding import canonical_json, parse_canonical_json
from shoal_protocol.wire.errors import MalformedDocument

_PROOF: Final = b',"log_proof":'
_SIGNATURE: Final = b',"signature":'


def with_log_proof(encoded: bytes, proof: str) -> bytes:
    """Return a signed document, in canonical form and without a proof, with one."""
    head, rest = encoded[: (at := encoded.rindex(_SIGNATURE))], encoded[at:]
    return head + _PROOF + canonical_json(proof) + rest


def parted(encoded: bytes) -> tuple[bytes, str | None]:
    """Return a signed document without its proof, and the proof, unread; None if there is none.

    Raises:
        MalformedDocument
    """
    # within strings quotes are escaped, and no document has a field of this name
    head, found, rest = encoded.rpartition(_PROOF)
    if not found:
        return encoded, None
    written, signature, rest = rest.partition(_SIGNATURE)
    proof = parse_canonical_json(written)
    if not isinstance(proof, str):
        raise MalformedDocument("a proof is a text")
    return head + signature + rest, proof
