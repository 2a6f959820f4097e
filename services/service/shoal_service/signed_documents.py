"""Decodes signed documents by the keys of the manifest versions that a party has accepted.

Who only knows the version that a document should be bound to has no need of this.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from nacl.signing import VerifyKey

from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.wire.documents import Document, DocumentT, Signed, check_signature, decode
from shoal_protocol.wire.encoding import domain
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    ProtocolError,
    UnsupportedVersion,
)
from shoal_protocol.wire.versions import WIRE

_BOUND_TO: Final = re.compile(rb'"manifest":"([0-9a-f]{64})"')
_VERSION_FIELD: Final = b'"version":%d' % WIRE


def read_signed(book: ManifestBook, encoded: bytes, *kinds: type[DocumentT]) -> Signed[DocumentT]:
    """Decode a signed document, once its signature holds by a version that was accepted.

    Whether that is the version which the document is bound to is for the caller to verify.

    Raises:
        MalformedDocument, UnsupportedVersion
        UnknownManifest: none holds, and it is bound to a version that was never accepted here.
        UnknownSigner, WrongSigner, BadSignature, UnknownHolder, RevokedHolder: none holds.
    """
    return decode(encoded, *kinds, check=partial(_check_signature, book))


def _check_signature(
    book: ManifestBook, kinds: Sequence[type[Document]], body: bytes, signer: str, signature: str
) -> bytes:
    refusals: list[ProtocolError] = []
    tried = set()
    for kind in kinds:
        named = kind.model_fields["kind"].default
        if f'"kind":"{named}"'.encode() not in body:
            continue
        role = kind.signed_by
        found = re.search(rb'"%s":(\d{1,10})[,}]' % role.value.encode(), body)
        for version in reversed(book.versions):
            try:
                key = version.key_of(role, signer, int(found[1]) if found else None)
                if (named, key) not in tried:
                    tried.add((named, key))
                    check_signature(VerifyKey(key), domain(named) + body, signature)
                    return key
            except ProtocolError as error:
                refusals.append(error)
    if not refusals:
        raise MalformedDocument("a document of another kind is due here")
    bound_to = _BOUND_TO.search(body)
    if bound_to is not None:
        book.get(bound_to[1].decode())
    if _VERSION_FIELD not in body:
        raise UnsupportedVersion
    raise next((each for each in refusals if isinstance(each, BadSignature)), refusals[0])
