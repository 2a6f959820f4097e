"""Signed documents: what crosses an organisation's border.

On the wire: the canonical JSON of {"body": ..., "signature": ..., "signer": ...}. The signature
(Ed25519, RFC 8032) and the digest (SHA-256) are taken over the same bytes: a domain prefix that
names protocol version and kind, then the canonical JSON of the body.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar

import pydantic
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from shoal_protocol.wire.encoding import (
    NAME_PATTERN,
    Digest,
    canonical_json,
    domain,
    parse_canonical_json,
    sha256,
)
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, UnsupportedVersion
from shoal_protocol.wire.versions import WIRE

_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")
_SIGNER: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LARGEST_FAULT_LIST: Final = 5
_WORDS: Final = {
    "missing": "is missing",
    "extra_forbidden": "is not a known setting",
    "union_tag_invalid": "not one of the known names",  # pydantic's own text quotes the tag
}
_HEX_PATTERN: Final = re.compile(r"\^\[0-9a-f\]\{(\d+)\}\$")
_FORMS: Final = {NAME_PATTERN: "1 to 63 of a-z, 0-9 and hyphens, and not begin with a hyphen"}


class Role(StrEnum):
    """Who may sign a kind of document."""

    AUTHORITY = "authority"
    ANALYST = "analyst"
    TRAINER = "trainer"
    HOLDER = "holder"  # of joins, leaves and queries
    OWNER = "owner"  # of a data holder: by a key that its policy lists
    CLIENT = "client"  # by the key of the data holder whose slot it is
    COMPUTE = "compute"
    AGGREGATOR = "aggregator"
    COMPUTE_OR_AGGREGATOR = "compute_or_aggregator"


class Model(pydantic.BaseModel):
    """A part of a document. Unknown fields are refused: one dropped unseen is a downgrade."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )


class Document(Model):
    """The body of a signed document; each subclass narrows `kind` to its own name."""

    signed_by: ClassVar[Role]
    signer_field: ClassVar[str | None] = None  # the field that must repeat the signer's name

    kind: str
    version: Literal[1] = WIRE

    @cached_property
    def canonical(self) -> bytes:
        """The canonical JSON of the body."""
        return canonical_json(self.model_dump(mode="json"))

    def message(self) -> bytes:
        """Return the bytes that are signed and hashed."""
        return domain(self.kind) + self.canonical

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 digest that names this document, in hex."""
        return sha256(self.kind, self.canonical)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy as pydantic does, except for digest and bytes, which are the original's alone."""
        copied = super().model_copy(update=update, deep=deep)
        for own in ("canonical", "digest"):
            copied.__dict__.pop(own, None)
        return copied


class BoundDocument(Document):
    """A document bound to one version of the consortium's manifest."""

    manifest: Digest


DocumentT = TypeVar("DocumentT", bound=Document)


@dataclass(frozen=True)
class Signed(Generic[DocumentT]):
    """A document with its signer's name and signature, not verified by being here."""

    body: DocumentT
    signer: str
    signature: str

    @property
    def digest(self) -> str:
        """Return the digest of the body."""
        return self.body.digest

    def to_json(self) -> dict[str, Any]:
        """Return the JSON value that goes on the wire."""
        return {
            "body": self.body.model_dump(mode="json"),
            "signature": self.signature,
            "signer": self.signer,
        }

    def encode(self) -> bytes:
        """Return the canonical bytes that go on the wire."""
        rest = canonical_json({"signature": self.signature, "signer": self.signer})
        return b'{"body":' + self.body.canonical + b"," + rest[1:]

    def verify_signature(self, key: VerifyKey) -> None:
        """Check the signature.

        Raises:
            BadSignature: it is not one of `key` over this body.
        """
        check_signature(key, self.body.message(), self.signature)


def check_signature(key: VerifyKey, message: bytes, signature: str) -> None:
    """Check a signature in hex.

    Raises:
        BadSignature: it is not one of `key` over `message`.
    """
    try:
        key.verify(message, bytes.fromhex(signature))
    except (BadSignatureError, ValueError) as error:
        raise BadSignature from error


def sign(body: DocumentT, signer: str, key: SigningKey) -> Signed[DocumentT]:
    """Sign `body` as the party named `signer`."""
    return Signed(body, signer, key.sign(body.message()).signature.hex())


def sign_again(encoded: bytes, kind: type[DocumentT], key: SigningKey) -> bytes:
    """Return a signed document of one's own with the signature of another key."""
    signed = decode(encoded, kind)
    return sign(signed.body, signed.signer, key).encode()


def decode(encoded: bytes, *kinds: type[DocumentT]) -> Signed[DocumentT]:
    """Decode the wire form of a signed document of one of `kinds`; the signature is not checked.

    Raises:
        MalformedDocument: not canonical, not of these kinds, or with wrong fields.
        UnsupportedVersion: of another version of the protocol.
    """
    return from_json(parse_canonical_json(encoded), *kinds)


def from_json(value: Any, *kinds: type[DocumentT]) -> Signed[DocumentT]:
    """Decode a signed document from a JSON value that came in canonical form.

    Raises:
        MalformedDocument, UnsupportedVersion: as `decode`.
    """
    signed = read_uncompared(value, *kinds)
    kind = _kind_of(type(signed.body))
    try:
        canonical = signed.body.canonical
    except ValueError:  # without the cause, which may quote what the peer sent
        raise MalformedDocument(f"a {kind} is nested too deep") from None
    if canonical != canonical_json(value["body"]):
        raise MalformedDocument(f"a {kind} is not written in its canonical form")
    return signed


def read_uncompared(value: Any, *kinds: type[DocumentT]) -> Signed[DocumentT]:
    """Decode a signed document inside another one that is itself checked to be canonical.

    Raises:
        MalformedDocument, UnsupportedVersion: as `decode`.
    """
    if not isinstance(value, dict) or value.keys() != {"body", "signature", "signer"}:
        raise MalformedDocument("a signed document has the fields body, signature and signer")
    body, signer, signature = value["body"], value["signer"], value["signature"]
    if not isinstance(body, dict) or not isinstance(signer, str) or not isinstance(signature, str):
        raise MalformedDocument("a signed document's fields have the wrong types")
    if not _SIGNER.fullmatch(signer) or not _SIGNATURE.fullmatch(signature):
        raise MalformedDocument("signer must be a name, and signature 128 lower-case hex digits")
    version = body.get("version")
    if type(version) is not int or version != WIRE:
        raise UnsupportedVersion
    for kind in kinds:
        if body.get("kind") == _kind_of(kind):
            return Signed(_validated(kind, body), signer, signature)
    raise MalformedDocument("a document of another kind is due here")


def _kind_of(document: type[Document]) -> str:
    kind: str = document.model_fields["kind"].default
    return kind


def _validated(kind: type[DocumentT], body: dict[str, Any]) -> DocumentT:
    try:
        return kind.model_validate(body)
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error, kind)) from None


def describe(error: pydantic.ValidationError, sent: type[pydantic.BaseModel] | None = None) -> str:
    """Say which fields are wrong and why, without the values.

    With `sent`, the model that a peer's message was to be, names that are not the model's own are
    left out too: an unknown field or a key is input like any other.
    """
    names = None if sent is None else _published_names(sent)
    faults = error.errors(include_url=False, include_input=False)
    # a list is too short where its parts are wrong: say how these are
    within = {fault["loc"][:depth] for fault in faults for depth in range(len(fault["loc"]))}
    faults = [each for each in faults if each["type"] != "too_short" or each["loc"] not in within]
    texts = []
    for fault in faults[:_LARGEST_FAULT_LIST]:
        where = ".".join(
            str(part) if names is None or isinstance(part, int) or part in names else "*"
            for part in fault["loc"]
        )
        what = _plainly(fault["type"], fault["msg"], fault.get("ctx", {}))
        texts.append(f"{where}: {what}" if where else what)
    more = len(faults) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")


def _plainly(kind: str, message: str, context: Mapping[str, Any]) -> str:
    """Word a fault for people who have not heard of the validator."""
    if kind in _WORDS:
        return _WORDS[kind]
    if kind == "string_pattern_mismatch":
        hexadecimal = _HEX_PATTERN.fullmatch(context["pattern"])
        digits = f"{hexadecimal[1]} lower-case hexadecimal digits" if hexadecimal else None
        return f"should be {digits or _FORMS.get(context['pattern'], 'of another form')}"
    return message.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")


@cache
def _published_names(model: type[pydantic.BaseModel]) -> frozenset[str]:
    """Return the field names in a model and in the models inside it."""
    schema = model.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    return frozenset(name for part in parts for name in part.get("properties", ()))
