"""Canonical bytes of JSON values, bitmaps and vectors; ranges of numbers; canonical texts.

A value has one encoding (RFC 8785), and bytes that are not the encoding of what they say are
refused, so that nothing can change unseen by a digest or a signature.

The square of each number is finite, and so are sums of many squares and products of two. Every
numeric field has a type from here or narrower bounds of its own; a test finds any other.

Spreadsheets, keyboards and programs write one text in several ways: with a space at its end, with a
no-break space, with an accent as a character of its own. Wherever texts are compared, their
canonical forms are.
"""

import base64
import hashlib
import json
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
import rfc8785
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, StringConstraints
from pyroaring import BitMap

from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.versions import WIRE

_AROUND: Final = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
    "\u200b\u2060\ufeff"
)
"""White space of Unicode, and the three characters that show nothing and end up at texts' ends."""

MISSING_TEXTS: Final = frozenset(
    {*("na", "n/a", "#n/a", "nan", "null", "#null!", "nil", "none", "-", "--", ".", "?"), "missing"}
)
"""Texts, in lower case, that programs write where a value is missing."""


def canonical_text(text: str) -> str:
    """Return the one form of a text: composed characters (NFC), and no space around them."""
    return unicodedata.normalize("NFC", text).strip(_AROUND)


def near_text(text: str, among: Iterable[str]) -> str | None:
    """Return the first text that differs from this one by case, width or punctuation alone.

    What is near is never taken for the text itself: it is named in a message. None if none is near.
    """
    wanted = _bare(text)
    return next((each for each in among if _bare(each) == wanted), None) if wanted else None


def _bare(text: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(each for each in folded if each.isalnum())


LARGEST: Final = 1e30
"""Largest magnitude of a value of data, and of what a term makes of one."""

LARGEST_CLIENTS: Final = 2**32
"""Most clients that there can be: each has an index of 32 bits."""

_LARGEST_RESULT: Final = 1e150  # a covariance has squares of a target's unit over a feature's

Real = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
"""A value in the data's own units: a bound, a level, an edge, a prior mean."""

Positive = Annotated[float, Field(ge=1e-40, le=1e40, allow_inf_nan=False)]
"""A width, a standard deviation or a scale in the data's own units.

Bounds may be 1e-30 narrow and 2e30 wide, and a later round's scales some powers of ten beyond.
"""

Radius = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]
"""Of a ball of rows in normalised units, where a column is within [-1, 1]."""

Finite = Annotated[float, Field(ge=-_LARGEST_RESULT, le=_LARGEST_RESULT, allow_inf_nan=False)]
"""What was computed from released sums, in any unit."""

Size = Annotated[float, Field(ge=0.0, le=_LARGEST_RESULT, allow_inf_nan=False)]
"""A result that is not negative."""

PositiveSize = Annotated[float, Field(gt=0.0, le=_LARGEST_RESULT, allow_inf_nan=False)]
"""A result that is positive."""

Loss = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]
"""A privacy loss, mu or epsilon: nothing that anybody may allow is near the largest."""

Delta = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
"""The delta of (epsilon, delta); 0 is pure."""

Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
"""A number of things, or a place among them: what JSON writes exactly (RFC 7493, section 2.2)."""

Place = Annotated[int, Field(ge=1, le=2**53 - 1)]
"""A place in a sequence that begins at 1, or a number of things that there is one of at least."""

Clients = Annotated[int, Field(ge=0, le=LARGEST_CLIENTS)]
"""A number of clients."""

Integer = Annotated[int, Field(gt=-(2**53), lt=2**53)]
"""A whole number that JSON writes exactly, such as a weight on a grid."""


NAME_PATTERN: Final = "^[a-z0-9][a-z0-9-]{0,62}$"
LARGEST_CLIENT_INDEX: Final = 2**32 - 1
LARGEST_SET: Final = 10_000_000  # clients in one set: a few bytes of bitmap could claim 2**32
LONGEST_BASE64: Final = 16 << 20  # a vector of a million numbers of 8 bytes needs two thirds
MOST_VALUES: Final = 1 << 20  # in one JSON text, for a value of 3 bytes can take 70 in memory
_LARGEST_INTEGER: Final = 2**53 - 1  # RFC 8785 (RFC 7493, section 2.2)
_BEGIN, _END = "\ud800", "\udfff"
_SIMPLE: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":")
)

Uint64Vector = npt.NDArray[np.uint64]
Int64Vector = npt.NDArray[np.int64]


def domain(kind: str) -> bytes:
    """Return the prefix that keeps what is hashed or signed as one kind from passing as another."""
    return f"shoal/v{WIRE}/{kind}\n".encode()


def sha256(kind: str, content: bytes) -> str:
    """Return the domain-separated SHA-256 digest of `content` in hex."""
    return hashlib.sha256(domain(kind) + content).hexdigest()


def canonical_json(value: Any) -> bytes:
    """Encode `value` by RFC 8785.

    Raises:
        ValueError: it holds a NaN, an infinity or an integer beyond 2**53.
    """
    numbers: list[str] = []
    try:
        try:
            text = _SIMPLE.encode(_for_python(value, numbers))
        except TypeError:
            return rfc8785.dumps(value)
        if numbers and text.count(_BEGIN) == text.count(_END) == len(numbers):
            text = text.replace(f'"{_BEGIN}', "").replace(f'{_END}"', "")
        return text.encode()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise ValueError("the value has no canonical encoding") from error


def _for_python(value: Any, numbers: list[str]) -> Any:
    """Return what Python's own encoder, many times as fast, writes as `value` in canonical form.

    It writes the largest and the smallest numbers otherwise: they are texts here, between lone
    surrogates, which no text with a canonical form has, and are added to `numbers`.

    Raises:
        TypeError: it holds an integer beyond 2**53, what JSON does not have, or a name beyond
            ASCII, which RFC 8785 sorts by UTF-16 units.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is dict and "".join(value).isascii():
        return {
            name: each if type(each) is str else _for_python(each, numbers)
            for name, each in value.items()
        }
    if kind is list:
        return [_for_python(each, numbers) for each in value]
    if kind is int and -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER:
        return value
    if kind is not float:
        raise TypeError
    if value.is_integer() and abs(value) < 1e16:
        return int(value)
    if not 1e-4 <= abs(value) < 1e16:
        numbers.append(rfc8785.dumps(value).decode())
        return f"{_BEGIN}{numbers[-1]}{_END}"
    return value


def parse_canonical_json(encoded: bytes, *, most_values: int = MOST_VALUES) -> Any:
    """Decode bytes that are the canonical encoding of a JSON value.

    Raises:
        MalformedDocument: they are not JSON, not in canonical form, or hold more than
            `most_values` commas and opening brackets, in strings too.
    """
    check_values(encoded, most_values)
    try:
        value = json.loads(encoded, parse_constant=_refuse_constant, parse_int=_parse_integer)
        again = canonical_json(value)
    except (ValueError, RecursionError):
        # without the cause, which may quote what the peer sent
        raise MalformedDocument("the body is not JSON that has a canonical form") from None
    if again != encoded:
        raise MalformedDocument("the JSON is not in canonical form (RFC 8785)")
    return value


def check_values(encoded: bytes, most_values: int = MOST_VALUES) -> None:
    """Refuse a JSON text of too many values, which would take many times its bytes once parsed.

    Raises:
        MalformedDocument: it has more than `most_values` commas and opening brackets.
    """
    if sum(encoded.count(structural) for structural in (b"[", b"{", b",")) > most_values:
        raise MalformedDocument(f"the JSON holds more than {most_values} values")


def _parse_integer(text: str) -> int | float:
    # JSON has one kind of number: from 2**53 to 1e21 a float's canonical form has no point either
    value = int(text) if len(text) <= 17 else float(text)
    return value if abs(value) <= _LARGEST_INTEGER else float(value)


def _refuse_constant(name: str) -> None:
    raise ValueError("JSON has no NaN and no infinity")


def _refuse_uneven_time(moment: datetime) -> datetime:
    if moment.tzinfo is None or moment.utcoffset() != UTC.utcoffset(None):
        raise ValueError("a time must be in UTC")
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _parse_time(value: object) -> object:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value) if value.endswith("Z") else None
        except ValueError:  # whose text would quote the value
            moment = None
        if moment is None or format_time(moment) != value:
            raise ValueError("a time is written as YYYY-MM-DDTHH:MM:SS.mmmZ")
        return moment
    if not isinstance(value, datetime):
        raise ValueError("a time is a string")
    return value


def format_time(moment: datetime) -> str:
    """Write a time as RFC 3339 in UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _refuse_loose_base64(text: str) -> str:
    decode_base64(text)
    return text


def decode_base64(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("not base64") from None
    if base64.b64encode(decoded).decode() != text:
        raise ValueError("not in canonical base64")
    return decoded


def _hex_type(size_bytes: int) -> Any:
    return StringConstraints(pattern=rf"^[0-9a-f]{{{2 * size_bytes}}}$")


Timestamp = Annotated[
    datetime,
    BeforeValidator(_parse_time),
    AfterValidator(_refuse_uneven_time),
    PlainSerializer(format_time, return_type=str),
]
HolderIndex = Annotated[int, Field(ge=0, le=LARGEST_CLIENT_INDEX)]
Digest = Annotated[str, _hex_type(32)]
VerifyKeyHex = Annotated[str, _hex_type(32)]
BoxKeyHex = Annotated[str, _hex_type(32)]
NonceHex = Annotated[str, _hex_type(16)]
Base64 = Annotated[
    str, StringConstraints(max_length=LONGEST_BASE64), AfterValidator(_refuse_loose_base64)
]
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]


def encode_clients(clients: Iterable[int] | BitMap) -> str:
    """Encode a set of client indices as base64 of a Roaring bitmap in its portable format.

    Raises:
        ValueError: an index is outside [0, 2**32), or there are more than `LARGEST_SET`.
    """
    if not isinstance(clients, BitMap):
        try:
            clients = BitMap(np.fromiter(sorted(clients), np.uint32))
        except OverflowError as error:
            raise ValueError("a client index lies outside [0, 2**32)") from error
    if len(clients) > LARGEST_SET:
        raise ValueError(f"a set holds at most {LARGEST_SET} clients")
    # rebuilt from sorted values, so that equal sets give equal bytes whatever made them
    bitmap = BitMap(clients.to_array())
    bitmap.run_optimize()
    return base64.b64encode(bitmap.serialize()).decode()


def decode_clients(encoded: str) -> BitMap:
    """Decode `encode_clients`.

    Raises:
        MalformedDocument: not the canonical encoding of a set of at most `LARGEST_SET` clients.
    """
    try:
        bitmap: BitMap = BitMap.deserialize(decode_base64(encoded))
        again = encode_clients(bitmap)
    except (ValueError, IndexError):
        raise MalformedDocument(
            f"a set of clients is not base64 of a Roaring bitmap of at most {LARGEST_SET}"
        ) from None
    if again != encoded:
        raise MalformedDocument("a set of clients is not in canonical encoding")
    return bitmap
