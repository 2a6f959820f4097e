"""Signed documents: what crosses an organisation's border.

On the wire: the canonical JSON of {"body": ..., "signature": ..., "signer": ...}. The signature
(Ed25519, RFC 8032) and the digest (SHA-256) are taken over the same bytes: a domain prefix that
names protocol version and kind, then the canonical JSON of the body. In a manifest a
field `countersignatures` may stand beside what is signed: what Compute nodes signed of it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, Self, TypeVar, get_args

import pydantic
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey
from pydantic_core import CoreSchema, core_schema

from shoal_protocol.wire.encoding import (
    NAME_PATTERN,
    Digest,
    HolderIndex,
    Name,
    canonical_json,
    domain,
    parse_canonical_json,
    sha256,
)
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, UnsupportedVersion
from shoal_protocol.wire.versions import RELEASE, WIRE

_COUNTERSIGNATURES: Final = b',"countersignatures":'
_SIGNATURE_FIELD: Final = b',"signature":'


def _parted(encoded: bytes) -> tuple[bytes, str | None]:
    """Return a signed document without its countersignatures, and these, unread, if there are any.

    Raises:
        MalformedDocument
    """
    # within strings quotes are escaped, and no document has a field of this name
    head, found, rest = encoded.rpartition(_COUNTERSIGNATURES)
    written, signature, rest = rest.partition(_SIGNATURE_FIELD) if found else (b"null", b"", rest)
    if found and not written.startswith(b'"'):  # nobody signed it: many values are not read
        raise MalformedDocument("countersignatures are a text")
    return head + signature + rest, parse_canonical_json(written)


_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")
_SIGNER: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_FRAME: Final = re.compile(
    rb'\{"body":(\{.*\}),"signature":"([0-9a-f]{128})","signer":"([a-z0-9][a-z0-9-]{0,62})"\}',
    re.DOTALL,
)
_LARGEST_FAULT_LIST: Final = 5
_MOST_UNKNOWN: Final = 32  # fields of one part that are named one by one
MOST: Final = 100_000
"""Bound on a sequence, a mapping or a text that states none: as many rounds as a job may have."""
_WORDS: Final = {
    "missing": "is missing",
    "tuple_type": "should be a list, as [1, 2]",
    "extra_forbidden": f"is not known to release {RELEASE}",
    "union_tag_invalid": "not one of the known names",  # pydantic's own text quotes the tag
}
_HEX_PATTERN: Final = re.compile(r"\^\[0-9a-f\]\{(\d+)\}\$")
_SEVERAL: Final = {"list", "dict", "set", "frozenset"}
_NO_SCHEMA: Final = {"default", "expected", "metadata"}  # values within a schema
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
    SERVICE = "service"


def _add_bounds(schema: Any) -> None:
    """Add bounds to the sequences, mappings and texts of a schema of pydantic's core."""
    if isinstance(schema, list | tuple):
        for part in schema:
            _add_bounds(part)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, str) and (kind in _SEVERAL or "variadic_item_index" in schema):
            schema.setdefault("max_length", MOST)
            schema["fail_fast"] = True
        elif kind == "str":
            schema.setdefault("max_length", MOST)
        for name, part in schema.items():
            if name not in _NO_SCHEMA:
                _add_bounds(list(part.values()) if name == "fields" else part)


class Model(pydantic.BaseModel):
    """A part of a document. Unknown fields are refused: one dropped unseen is a downgrade.

    Every sequence, mapping and text has a bound, `MOST` where its field states none, and a sequence
    or a mapping is left at its first fault. So few errors are built, whatever was sent.
    """

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: pydantic.GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        _add_bounds(schema)
        return schema

    @pydantic.model_validator(mode="before")
    @classmethod
    def _few_unknown_fields(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > len(cls.model_fields) + _MOST_UNKNOWN:
            raise ValueError(f"has more than {_MOST_UNKNOWN} fields that are not known")
        return value


class Document(Model):
    """The body of a signed document; each subclass narrows `kind` to its own name."""

    signed_by: ClassVar[Role]
    signer_field: ClassVar[str | None] = None  # the field that must repeat the signer's name
    most_values: ClassVar[int] = 1 << 16  # in its JSON, which takes many times its bytes once read
    is_countersigned: ClassVar[bool] = False  # others' signatures may stand beside what is signed

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


class AnalystDocument(BoundDocument):
    """A document that an analyst signs."""

    signed_by: ClassVar[Role] = Role.ANALYST
    signer_field: ClassVar[str | None] = "analyst"

    analyst: Name


class NodeDocument(BoundDocument):
    """A document that a Compute node signs."""

    signed_by: ClassVar[Role] = Role.COMPUTE
    signer_field: ClassVar[str | None] = "node"

    node: Name


class TrainerDocument(BoundDocument):
    """A document that the trainer signs."""

    signed_by: ClassVar[Role] = Role.TRAINER


class HolderDocument(BoundDocument):
    """A document that a data holder signs."""

    signed_by: ClassVar[Role] = Role.HOLDER

    holder: HolderIndex


DocumentT = TypeVar("DocumentT", bound=Document)
BodyT = TypeVar("BodyT", bound=Document, covariant=True)


@dataclass(frozen=True)
class Signed(Generic[BodyT]):
    """A document with its signer's name and signature, not verified by being here."""

    body: BodyT
    signer: str
    signature: str
    countersignatures: str | None = None  # unread
    verified_by: bytes | None = field(default=None, init=False, compare=False, repr=False)
    """The verify key by which the signature was checked over these very bytes when they came."""

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
        """Return the canonical bytes that go on the wire, countersignatures among them."""
        others = self.countersignatures
        beside = {} if others is None else {"countersignatures": others}
        rest = canonical_json(beside | {"signature": self.signature, "signer": self.signer})
        return b'{"body":' + self.body.canonical + b"," + rest[1:]

    def verify_signature(self, key: VerifyKey) -> None:
        """Check the signature.

        Raises:
            BadSignature: it is not one of `key` over this body.
        """
        if self.verified_by != bytes(key):
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


SignatureCheck = Callable[[Sequence[type[Document]], bytes, str, str], bytes | None]
"""Takes the kinds that may come, the body's bytes, signer and signature.

Returns the key that signed; None for kinds whose key nothing but the body tells. Raises a
`ProtocolError` if no key of the signer's did.
"""


def decode(
    encoded: bytes, *kinds: type[DocumentT], check: SignatureCheck | None = None
) -> Signed[DocumentT]:
    """Decode the wire form of a signed document of one of `kinds`.

    Nothing of it is parsed before `check` has found its signature good. Without `check` the
    signature is not looked at. Nor are countersignatures.

    Raises:
        MalformedDocument: not canonical, not of these kinds, or with wrong fields.
        UnsupportedVersion: of another version of the protocol.
        ProtocolError: as `check`.
    """
    key, countersignatures = None, None
    if any(kind.is_countersigned for kind in kinds):
        encoded, countersignatures = _parted(encoded)
    if check is not None:
        found = _FRAME.fullmatch(encoded)
        if found is None:
            raise MalformedDocument("a signed document has body, signature and signer, canonically")
        body, signature, signer = found.groups()
        key = check(kinds, body, signer.decode(), signature.decode())
    most = max(kind.most_values for kind in kinds)
    value = parse_canonical_json(encoded, most_values=most)
    signed = replace(from_json(value, *kinds), countersignatures=countersignatures)
    object.__setattr__(signed, "verified_by", key)
    return signed


def from_json(value: Any, *kinds: type[DocumentT]) -> Signed[DocumentT]:
    """Decode a signed document from a JSON value that came in canonical form.

    Raises:
        MalformedDocument, UnsupportedVersion: as `decode`.
    """
    signed = _read(value, *kinds)
    kind = _kind_of(type(signed.body))
    try:
        canonical = signed.body.canonical
    except ValueError:  # without the cause, which may quote what the peer sent
        raise MalformedDocument(f"a {kind} is nested too deep") from None
    if canonical != canonical_json(value["body"]):
        raise MalformedDocument(f"a {kind} is not written in its canonical form")
    return signed


def _read(value: Any, *kinds: type[DocumentT]) -> Signed[DocumentT]:
    """Read a signed document; that it is canonical is for the caller to check."""
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
            try:
                return Signed(kind.model_validate(body), signer, signature)
            except pydantic.ValidationError as error:
                raise MalformedDocument(describe(error, kind)) from None
    raise MalformedDocument("a document of another kind is due here")


def _kind_of(document: type[Document]) -> str:
    kind: str = document.model_fields["kind"].default
    return kind


class _Embedding:
    """Reads and writes a field that is itself a signed document."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: pydantic.GetCoreSchemaHandler
    ) -> CoreSchema:
        (kind,) = get_args(source)

        def read(value: object) -> Signed[Any]:
            if isinstance(value, Signed) and isinstance(value.body, kind):
                return value
            return _read(value, kind)  # the outer document is checked to be canonical as a whole

        return core_schema.no_info_plain_validator_function(
            read,
            json_schema_input_schema=core_schema.any_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(Signed.to_json),
        )


Embedded = Annotated[Signed[DocumentT], _Embedding()]
"""A field that is a signed document of this kind, in which it has no countersignatures."""


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
    if kind == "too_short":
        return f"should have at least {context['min_length']}, not {context['actual_length']}"
    return message.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")


@cache
def _published_names(model: type[pydantic.BaseModel]) -> frozenset[str]:
    """Return the field names in a model and in the models inside it."""
    schema = model.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    return frozenset(name for part in parts for name in part.get("properties", ()))
