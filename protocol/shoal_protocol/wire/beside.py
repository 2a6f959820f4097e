"""A proof of the log beside what is signed: the field `log_proof` of a signed document."""

from typing import Final

from shoal_protocol.wire.encoding import canonical_json, parse_canonical_json
from shoal_protocol.wire.errors import MalformedDocument

_PROOF: Final = b',"log_proof":'
_SIGNATURE: Final = b',"signature":'


def with_log_proof(encoded: bytes, proof: str) -> bytes:
    """Return a signed document, in canonical form and without a proof, with one."""
    at = encoded.rindex(_SIGNATURE)
    return encoded[:at] + _PROOF + canonical_json(proof) + encoded[at:]


def parted(encoded: bytes) -> tuple[bytes, str | None]:
    """Return a signed document without its proof, and the proof, unread; None if there is none.

    Raises:
        MalformedDocument
    """
    # within strings quotes are escaped, and no document has a field of this name
    head, found, rest = encoded.rpartition(_PROOF)
    written, signature, rest = rest.partition(_SIGNATURE) if found else (b"null", b"", rest)
    if found and not written.startswith(b'"'):  # nobody signed it: many values are not read
        raise MalformedDocument("a proof is a text")
    proof = parse_canonical_json(written)
    return head + signature + rest, proof
