"""Encodes heads of requests and decodes heads of answers, in the services' subset of HTTP/1.1."""

import re
from dataclasses import dataclass
from typing import Final

import httpx

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_NOT_IN_A_HEAD: Final = re.compile(rb"[\r\n\0]")
_WITHOUT_BODY: Final = frozenset({204, 304})


@dataclass(frozen=True)
class AnswerHead:
    """The head of an answer; names of its fields are in lower case.

    `length` is that of the body in bytes, None where it comes in chunks. `stays` tells whether the
    connection takes another request.
    """

    status: int
    fields: list[tuple[bytes, bytes]]
    length: int | None
    stays: bool


def encoded_head(request: httpx.Request) -> bytes:
    """Return a request's head.

    Raises:
        httpx.LocalProtocolError: it is not for HTTPS, or would be read as more than one.
    """
    line = b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)
    lines = [line, *(b"%b: %b" % field for field in request.headers.raw)]
    if request.url.scheme != "https" or any(map(_NOT_IN_A_HEAD.search, lines)):
        raise httpx.LocalProtocolError("a request must be for HTTPS, and its head of whole lines")
    return b"\r\n".join([*lines, b"", b""])


def decoded_head(head: bytes, method: str) -> AnswerHead:
    """Return what the head of an answer to a request says; `head` is without its empty line.

    Raises:
        httpx.RemoteProtocolError: no service answers so.
    """
    first, *lines = head.split(b"\r\n")
    status_line = _STATUS_LINE.fullmatch(first)
    matches = [_FIELD.fullmatch(line) for line in lines]
    fields = [(each[1].lower(), each[2].rstrip(b" \t")) for each in matches if each is not None]
    if status_line is None or len(fields) < len(lines):
        raise httpx.RemoteProtocolError("the answer is none of HTTP/1.1")
    status = int(status_line[1])
    if status < 200:  # interim answers were not requested, and may come without end
        raise httpx.RemoteProtocolError("the answer begins with an informational one")
    length = 0 if method == "HEAD" or status in _WITHOUT_BODY else _length(fields)
    stays = (b"connection", b"close") not in {(name, value.lower()) for name, value in fields}
    return AnswerHead(status, fields, length, stays)


def _length(fields: list[tuple[bytes, bytes]]) -> int | None:
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if codings == [b"chunked"] and not lengths:
        return None
    if codings or len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]):
        raise httpx.RemoteProtocolError("the answer does not say where it ends")
    return int(lengths[0])
