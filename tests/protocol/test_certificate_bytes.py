"""No change of a certificate's or a manifest's bytes passes unseen."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_protocol.certificates import release_certificate
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import pack, unpack
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import UnknownManifest
from shoal_protocol.wire.service_errors import RefusedCertificate
from tests.world.certified import ONE_ROUND, TWO_ROUNDS
from tests.world.strategies import Path, at_path, flipped, json_values, paths, replaced, without

CERTIFICATE, MANIFEST = ONE_ROUND.encode(), ONE_ROUND.manifest
WIRE: Any = json.loads(CERTIFICATE)
OTHER: Any = json.loads(TWO_ROUNDS.encode())
PATHS: list[Path] = [*paths(WIRE)][1:]
JOB, SIGNATURE = WIRE["report"]["body"]["job"], WIRE["report"]["signature"]
FLIPS = (0x01, 0x02, 0x20, 0x80)  # another digit, another letter, the other case, no ASCII


def refuse(encoded: bytes, manifest: bytes = MANIFEST) -> str:
    """Expect a refusal, or that no version of the manifest is known, and return the reason."""
    with pytest.raises((RefusedCertificate, UnknownManifest)) as refused:
        verify_certificate(encoded, manifest)
    return str(refused.value)


@pytest.mark.slow
def test_bytes_all_over_a_certificate_count() -> None:
    for position in range(0, len(CERTIFICATE), 5):
        refuse(flipped(CERTIFICATE, position, FLIPS[position % len(FLIPS)]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("flip", FLIPS)
def test_every_byte_of_a_certificate_counts_in_several_values(flip: int) -> None:
    for position in range(len(CERTIFICATE)):
        refuse(flipped(CERTIFICATE, position, flip))


@pytest.mark.slow
@pytest.mark.parametrize("more", [b" ", b"0", b"\n", b'"', b"\x00"])
def test_nothing_is_put_into_a_certificate_unseen(more: bytes) -> None:
    for position in range(0, len(CERTIFICATE), 37):
        refuse(CERTIFICATE[:position] + more + CERTIFICATE[position:])


@pytest.mark.slow
def test_every_byte_of_the_manifest_counts() -> None:
    for position in range(len(MANIFEST)):
        refuse(CERTIFICATE, flipped(MANIFEST, position, FLIPS[position % len(FLIPS)]))


def test_a_manifest_cut_short_or_with_more_is_refused() -> None:
    for position in range(0, len(MANIFEST), 17):
        refuse(CERTIFICATE, MANIFEST[:position])
        refuse(CERTIFICATE, MANIFEST[:position] + b" " + MANIFEST[position:])


def again(old: str, new: str) -> Callable[[], bytes]:
    """Return how to write some text of the certificate in another way, wherever it stands."""

    def write() -> bytes:
        assert old.encode() in CERTIFICATE
        return CERTIFICATE.replace(old.encode(), new.encode(), 1)

    return write


OTHER_WAYS: dict[str, Callable[[], bytes]] = {
    "a member twice": again('"report":', '"report":null,"report":'),
    "a member twice with the same value": again('"number":0,', '"number":0,"number":0,'),
    "white space between members": lambda: json.dumps(WIRE, sort_keys=True).encode(),
    "indented": lambda: json.dumps(WIRE, sort_keys=True, indent=1).encode(),
    "a line's end": lambda: CERTIFICATE + b"\n",
    "a Windows line's end": lambda: CERTIFICATE + b"\r\n",
    "a byte order mark": lambda: b"\xef\xbb\xbf" + CERTIFICATE,
    "UTF-16": lambda: CERTIFICATE.decode().encode("utf-16"),
    "members in another order": lambda: json.dumps(
        {key: WIRE[key] for key in sorted(WIRE, reverse=True)}, separators=(",", ":")
    ).encode(),
    "a digest in capitals": lambda: CERTIFICATE.replace(JOB.encode(), JOB.upper().encode()),
    "a signature in capitals": lambda: CERTIFICATE.replace(
        SIGNATURE.encode(), SIGNATURE.upper().encode()
    ),
    "a letter as an escape": again('"trainer"', '"tr\\u0061iner"'),
    "a letter of a member as an escape": again('"kind"', '"\\u006bind"'),
    "an integer with a point": again('"cohort_size":11', '"cohort_size":11.0'),
    "an integer with an exponent": again('"cohort_size":11', '"cohort_size":1.1e1'),
    "a zero with a sign": again('"number":0', '"number":-0'),
    "a number with a leading zero": again('"cohort_size":11', '"cohort_size":011'),
    "a float with a further zero": again('"delta":0.000001', '"delta":0.0000010'),
    "a float with an exponent": again('"delta":0.000001', '"delta":1e-6'),
    "two certificates in one file": lambda: CERTIFICATE + CERTIFICATE,
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("name", OTHER_WAYS)
def test_a_certificate_has_one_way_of_being_written(name: str) -> None:
    changed = OTHER_WAYS[name]()
    assert changed != CERTIFICATE
    refuse(changed)


@pytest.mark.parametrize(
    "broken",
    [
        pack(CERTIFICATE)[:-1],
        pack(CERTIFICATE) + b"\0",
        2 * pack(CERTIFICATE),
        flipped(pack(CERTIFICATE), 100, 1),
        flipped(pack(CERTIFICATE), len(pack(CERTIFICATE)) - 6, 1),  # of its checksum
        pack(pack(CERTIFICATE)),
    ],
    ids=["cut", "more", "twice", "flipped", "checksum", "packed twice"],
)
def test_what_is_no_whole_compressed_certificate_is_refused(broken: bytes) -> None:
    refuse(broken)


def test_a_certificate_is_unpacked_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_certificate, "LARGEST_BYTES", len(CERTIFICATE))
    assert unpack(pack(CERTIFICATE)) == CERTIFICATE
    monkeypatch.setattr(release_certificate, "LARGEST_BYTES", len(CERTIFICATE) - 1)
    refuse(pack(CERTIFICATE))
    refuse(pack(bytes(100 * len(CERTIFICATE))))


@pytest.mark.parametrize("loosen", ["padding", "unused bit", "line end"])
def test_a_set_of_clients_has_one_way_of_being_written(loosen: str) -> None:
    with_gap = replace(ONE_ROUND, lies={"population": lambda _: BitMap([*range(11), 12])})
    encoded = with_gap.encode()
    assert verify_certificate(encoded, MANIFEST)
    wire = json.loads(encoded)
    path = ("rounds", 0, "spec", "body", "population")
    text = at_path(wire, path)
    assert text.endswith("==")
    loose = {
        "padding": text[:-2],
        "unused bit": text[:-3] + chr(ord(text[-3]) + 1) + "==",
        "line end": text + "\n",
    }[loosen]
    refuse(encoded.replace(text.encode(), canonical_json(loose)[1:-1]))
    refuse(canonical_json(replaced(wire, path, loose)))


STAND_INS = (None, 1, "f" * 64, [])


@pytest.mark.slow
def test_whatever_anybody_changes_in_a_certificate_is_found() -> None:
    found = 0
    for path in PATHS:
        for stand_in in STAND_INS:
            if canonical_json(at_path(WIRE, path)) != canonical_json(stand_in):
                refuse(canonical_json(replaced(WIRE, path, stand_in)))
                found += 1
        refuse(canonical_json(without(WIRE, path)))
    assert found > 500


@pytest.mark.slow
def test_whatever_stands_in_another_jobs_certificate_is_found_in_this_one() -> None:
    swapped = 0
    for path in PATHS:
        try:
            foreign = at_path(OTHER, path)
        except (KeyError, IndexError, TypeError):
            continue
        if foreign != at_path(WIRE, path):
            refuse(canonical_json(replaced(WIRE, path, foreign)))
            swapped += 1
    assert swapped > 50


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_and_nothing_else_happens(one: bytes, other: bytes) -> None:
    refuse(one)
    refuse(CERTIFICATE, other)


@given(json_values.map(canonical_json))
def test_arbitrary_json_is_refused(encoded: bytes) -> None:
    refuse(encoded)
    refuse(CERTIFICATE, encoded)


@given(st.data())
def test_any_json_in_any_place_is_refused(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(PATHS))
    value = data.draw(json_values)
    if canonical_json(value) != canonical_json(at_path(WIRE, path)):
        refuse(canonical_json(replaced(WIRE, path, value)))
