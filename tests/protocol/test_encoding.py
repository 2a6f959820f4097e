"""Canonical bytes: one encoding for each value, and nothing but that encoding is read."""

import base64
import json
import struct
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pydantic
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_protocol.wire.encoding import (
    LARGEST_SET,
    MOST_VALUES,
    Base64,
    Timestamp,
    canonical_json,
    decode_clients,
    domain,
    encode_clients,
    format_time,
    parse_canonical_json,
    sha256,
)
from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from tests.world.examples import DOCUMENTS
from tests.world.strategies import client_sets, json_values

# RFC 8785, appendix B: bits of a double and its canonical form.
RFC_8785_NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), RFC_8785_NUMBERS.items())
def test_numbers_are_written_and_read_as_rfc_8785_lists_them(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(number) == text.encode()
    assert parse_canonical_json(text.encode()) == number


@given(json_values)
def test_a_value_comes_back_from_its_canonical_encoding(value: object) -> None:
    encoded = canonical_json(value)
    assert parse_canonical_json(encoded) == value
    assert canonical_json(parse_canonical_json(encoded)) == encoded


@given(json_values)
def test_the_fast_way_and_the_slow_way_write_the_same_bytes(value: object) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    "value", ["\ud800", 2**53, -(2**53), [float("nan")], {1: 2}, b"", (object(),)]
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="no canonical encoding"):
        canonical_json(value)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [b"[]", b"{}", b"0"])
def test_json_of_too_many_values_is_refused_before_it_is_built(unit: bytes) -> None:
    per_unit = len(unit)  # a bracket, if it has one, and a comma
    most = b"[" + b",".join([unit] * (MOST_VALUES // per_unit)) + b"]"
    assert len(parse_canonical_json(most)) == MOST_VALUES // per_unit
    with pytest.raises(MalformedDocument, match="more than 1048576 values"):
        parse_canonical_json(b"[" + b",".join([unit] * (MOST_VALUES // per_unit + 1)) + b"]")


@pytest.mark.slow
def test_ten_thousand_joins_and_a_roster_of_a_million_are_not_too_many_values() -> None:
    joins = canonical_json({"documents": [DOCUMENTS["membership"].to_json()] * 10_000})
    assert len(parse_canonical_json(joins)["documents"]) == 10_000
    roster = base64.b64encode(bytes(32 * 1_000_000)).decode()
    bundle = canonical_json({"manifest": DOCUMENTS["manifest"].to_json(), "roster": roster})
    assert parse_canonical_json(bundle)["roster"] == roster


@given(json_values)
def test_json_in_another_form_than_the_canonical_one_is_refused(value: object) -> None:
    for loose in (
        json.dumps(value, ensure_ascii=True, indent=1),
        json.dumps(value, separators=(" ,", ":")),
        json.dumps(value) + "\n",
    ):
        if loose.encode() != canonical_json(value):
            with pytest.raises(MalformedDocument):
                parse_canonical_json(loose.encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        '{"a":1,"a":1}',  # a duplicate member
        '{"a":1,"a":2}',
        '{"b":1,"a":2}',  # not sorted
        '{"a": 1}',
        "-0",
        "-0.0",
        "0.0",
        "1.0",
        "1e2",
        "1E400",
        "0.10",
        "01",
        "+1",
        "NaN",
        "Infinity",
        "-Infinity",
        "9007199254740993",  # no double
        "100000000000000000001",
        "1000000000000000000000",  # canonical is 1e+21
        "1" * 5000,
        "9" * 400,
        r'"\u0041"',
        r'"\/"',
        r'"\u000A"',  # canonical is \n
        r'"\ud800"',  # half of a surrogate pair
        '"\n"',
        "tru",
        "[1,]",
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 5_000 + "1" + "}" * 5_000,
    ],
    ids=lambda text: f"{text[:25]}, {len(text)} characters",
)
def test_what_is_not_canonical_json_is_refused(text: str) -> None:
    with pytest.raises(MalformedDocument):
        parse_canonical_json(text.encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "utf-16-le"])
def test_only_utf_8_is_read(encoding: str) -> None:
    with pytest.raises(MalformedDocument):
        parse_canonical_json('{"a":1}'.encode(encoding))


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_read_or_refused_as_malformed(content: bytes) -> None:
    try:
        value = parse_canonical_json(content)
    except MalformedDocument:
        return
    assert canonical_json(value) == content


def test_a_digest_depends_on_the_kind_and_not_only_on_the_content() -> None:
    assert sha256("vote", b"{}") != sha256("holdings", b"{}")
    assert domain("vote") == b"shoal/v1/vote\n"


@given(client_sets)
def test_a_set_of_clients_comes_back_from_its_encoding(clients: set[int]) -> None:
    assert set(decode_clients(encode_clients(clients))) == clients


@pytest.mark.slow
@given(client_sets, st.randoms(use_true_random=False))
def test_equal_sets_have_equal_bytes_however_they_were_made(clients, random) -> None:
    shuffled = list(clients)
    random.shuffle(shuffled)
    one_by_one = BitMap()
    for client in shuffled[:500]:
        one_by_one.add(client)
    one_by_one |= BitMap(shuffled, optimize=False)
    runs = BitMap(shuffled)
    runs.run_optimize()
    encoded = encode_clients(clients)
    assert encode_clients(shuffled) == encode_clients(one_by_one) == encode_clients(runs) == encoded


@given(client_sets)
def test_a_bitmap_without_run_containers_is_refused_where_runs_are_due(clients: set[int]) -> None:
    plain = base64.b64encode(BitMap(sorted(clients), optimize=False).serialize()).decode()
    if plain != encode_clients(clients):
        with pytest.raises(MalformedDocument):
            decode_clients(plain)


@given(client_sets.filter(len), st.data())
def test_a_damaged_bitmap_is_refused_or_stands_for_another_set(
    clients: set[int], data: st.DataObject
) -> None:
    content = bytearray(base64.b64decode(encode_clients(clients)))
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    damaged = base64.b64encode(content).decode()
    try:
        assert set(decode_clients(damaged)) != clients
    except MalformedDocument:
        pass
    else:
        assert encode_clients(decode_clients(damaged)) == damaged


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b":0\0\0\1\0\0\0" + tail))
def test_arbitrary_bytes_are_a_canonical_bitmap_or_refused(content: bytes) -> None:
    encoded = base64.b64encode(content).decode()
    try:
        clients = decode_clients(encoded)
    except MalformedDocument:
        return
    assert encode_clients(clients) == encoded


@pytest.mark.parametrize(
    "encoded", ["", "=", "OjAAAAAAAAA", "OjAAAAAAAAA=\n", "OjAAAAAAAAB=", "é", "****", "OjAA"]
)
def test_a_set_in_loose_base64_is_refused(encoded: str) -> None:
    with pytest.raises(MalformedDocument):
        decode_clients(encoded)


def test_a_small_bitmap_that_claims_all_clients_is_refused_before_it_is_unpacked() -> None:
    everyone = BitMap()
    everyone.add_range(0, LARGEST_SET + 1)
    everyone.run_optimize()
    assert len(everyone.serialize()) < 4000
    with pytest.raises(MalformedDocument):
        decode_clients(base64.b64encode(everyone.serialize()).decode())
    with pytest.raises(ValueError, match="at most"):
        encode_clients(everyone)


@pytest.mark.parametrize("clients", [[-1], [2**32], [0, 2**40]])
def test_a_client_index_outside_32_bits_is_the_callers_fault(clients: list[int]) -> None:
    with pytest.raises(ValueError, match="outside"):
        encode_clients(clients)


def test_a_vector_is_little_endian() -> None:
    assert base64.b64decode(encode_uint64(np.array([1, 2**56], np.uint64))) == (
        b"\1" + bytes(14) + b"\1"
    )


@pytest.mark.slow
@given(
    st.text(max_size=30) | st.binary(max_size=30).map(lambda raw: base64.b64encode(raw).decode())
)
def test_arbitrary_text_is_a_vector_or_refused_as_malformed(text: str) -> None:
    try:
        vector = decode_uint64(text)
    except MalformedDocument:
        return
    assert encode_uint64(vector) == text


TIME = pydantic.TypeAdapter(Timestamp)


@given(st.datetimes(min_value=datetime(1, 1, 1), timezones=st.just(UTC)))
def test_a_time_comes_back_with_its_milliseconds(moment: datetime) -> None:
    text = format_time(moment)
    assert len(text) == 24
    assert TIME.validate_python(text) == moment.replace(
        microsecond=moment.microsecond // 1000 * 1000
    )
    assert TIME.dump_python(TIME.validate_python(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:00:00.000+00:00",
        "2026-03-01T12:00:00.000z",
        "2026-03-01 12:00:00.000Z",
        "2026-02-30T12:00:00.000Z",
        "2026-03-01T24:00:00.000Z",
        "2026-W09-7T12:00:00.0000Z",
        "\uff12026-03-01T12:00:00.000Z",
        "0001-01-01T00:00:00.000+23:59",
        "",
        "Z",
        1772366400,
        1772366400.5,
        True,
        None,
    ],
)
def test_a_time_in_another_form_is_refused_without_quoting_it(text: object) -> None:
    with pytest.raises(pydantic.ValidationError) as refusal:
        TIME.validate_python(text)
    if isinstance(text, str) and len(text) > 2:
        assert text not in str(refusal.value.errors(include_input=False))


def test_a_time_without_zone_or_in_another_zone_is_refused() -> None:
    for zone in (None, timezone(timedelta(hours=1))):
        with pytest.raises(pydantic.ValidationError):
            TIME.validate_python(datetime(2026, 3, 1, tzinfo=zone))


@given(st.binary(max_size=20))
def test_only_canonical_base64_is_taken(content: bytes) -> None:
    adapter = pydantic.TypeAdapter(Base64)
    text = base64.b64encode(content).decode()
    assert adapter.validate_python(text) == text
    for loose in (text + "\n", " " + text, text + "=", "=" + text, text.rstrip("=") + "é"):
        with pytest.raises(pydantic.ValidationError):
            adapter.validate_python(loose)


def test_base64_with_stray_trailing_bits_is_refused() -> None:
    with pytest.raises(pydantic.ValidationError):
        pydantic.TypeAdapter(Base64).validate_python("QR==")  # QQ== is the encoding of b"A"
