"""The share envelope: whatever is changed, moved or cut off, a Compute node refuses it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings
from nacl.public import PrivateKey, SealedBox

from shoal_protocol.sharing import summation
from shoal_protocol.sharing.envelope import Header, frame, seal
from shoal_protocol.sharing.received import (
    SMALLEST_ENVELOPE,
    envelope_size,
    parse,
    unframe,
)
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.wire.errors import BadSignature, ProtocolError, UnsupportedVersion
from shoal_protocol.wire.service_errors import (
    MalformedEnvelope,
    TransplantedCiphertext,
    UnopenableCiphertext,
    WrongShare,
)
from tests.world.examples import (
    CONSORTIUM,
    DIMENSION,
    NODES,
    SHARING,
    box_key,
    box_private_key,
    client_key,
    envelopes,
    header,
    random_bytes,
    seed,
)
from tests.world.strategies import clients

CLIENT = 4
VECTOR_NODE = CLIENT % NODES
SEED_NODE = (CLIENT + 1) % NODES
ENVELOPES = envelopes(CLIENT)


def accept(encoded: bytes, node: int) -> Share:
    """Take an envelope in as Compute node `node` does, from its bytes to its share."""
    envelope = parse(encoded)
    envelope.verify(CONSORTIUM.roster.key_of(envelope.header.holder))
    share = envelope.open(box_private_key(node), box_key(node))
    summation.check(
        SHARING, share, holder=envelope.header.holder, node=node, nodes=NODES, dimension=DIMENSION
    )
    return share


def moved(encoded: bytes, changed: Header, signer: int) -> bytes:
    """Put an envelope's sealed box behind another header, and sign it as `signer`."""
    content = changed.encode() + encoded[92:-64]
    return content + client_key(signer).sign(b"shoal/v1/share_envelope\n" + content).signature


def test_all_shares_of_a_client_arrive() -> None:
    for node, encoded in enumerate(ENVELOPES):
        share = accept(encoded, node)
        assert parse(encoded).header == header(CLIENT, node)
        assert len(encoded) == envelope_size(share.kind, DIMENSION)


@given(
    node=st.integers(0, 255),
    holder=clients,
    manifest=st.binary(min_size=32, max_size=32),
    round_id=st.binary(min_size=32, max_size=32),
    vector=st.none() | st.binary(min_size=8, max_size=80),
    ephemeral=st.binary(min_size=32, max_size=32),
    answer=st.binary(min_size=16, max_size=16),
)
def test_what_is_sealed_is_opened(
    node, holder, manifest, round_id, vector, ephemeral, answer
) -> None:
    share = Share(ShareKind.SEED, bytes(32)) if vector is None else Share(ShareKind.VECTOR, vector)
    head = Header(share.kind, node, holder, manifest.hex(), round_id.hex(), answer)
    encoded = seal(
        share, head, box_key=box_key(0), key=client_key(1), random_bytes=lambda size: ephemeral
    )
    envelope = parse(encoded)
    assert envelope.header == head
    envelope.verify(bytes(client_key(1).verify_key))
    assert envelope.open(box_private_key(0), box_key(0)) == share


def test_the_box_is_a_libsodium_sealed_box_of_context_and_share() -> None:
    encoded = ENVELOPES[SEED_NODE]
    content = SealedBox(PrivateKey(box_private_key(SEED_NODE))).decrypt(encoded[92:-64])
    assert content[32:] == accept(encoded, SEED_NODE).payload
    assert len(content) == 64


@pytest.mark.parametrize("node", [SEED_NODE, VECTOR_NODE])
def test_every_single_bit_that_flips_is_refused_with_a_protocol_error(node: int) -> None:
    for bit in range(8 * len(ENVELOPES[node])):
        changed = bytearray(ENVELOPES[node])
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError):
            accept(bytes(changed), node)


@pytest.mark.parametrize("node", [SEED_NODE, VECTOR_NODE])
def test_every_truncation_and_every_extension_is_refused(node: int) -> None:
    encoded = ENVELOPES[node]
    for length in range(len(encoded)):
        with pytest.raises(ProtocolError):
            accept(encoded[:length], node)
    for extra in range(1, 65):
        with pytest.raises(ProtocolError):
            accept(encoded + bytes(extra), node)


@given(st.binary(max_size=400) | st.binary(max_size=400).map(lambda tail: b"SHOAL\1" + tail))
def test_arbitrary_bytes_raise_nothing_but_a_protocol_error(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        accept(content, SEED_NODE)


@given(st.binary(min_size=144, max_size=200))
def test_a_well_signed_envelope_of_junk_raises_nothing_but_a_protocol_error(junk: bytes) -> None:
    content = header(CLIENT, SEED_NODE).encode() + junk
    signature = client_key(CLIENT).sign(b"shoal/v1/share_envelope\n" + content).signature
    with pytest.raises(UnopenableCiphertext):
        accept(content + signature, SEED_NODE)


OTHER_HEADERS = {
    "another holder": lambda head: replace(head, holder=CLIENT + NODES),
    "another node": lambda head: replace(head, node=(head.node + 1) % NODES),
    "another round": lambda head: replace(head, round_id=seed("another round").hex()),
    "another manifest": lambda head: replace(head, manifest=seed("another manifest").hex()),
    "another kind": lambda head: replace(head, kind=ShareKind(1 - head.kind)),
}


@pytest.mark.parametrize("node", [SEED_NODE, VECTOR_NODE])
@pytest.mark.parametrize("change", OTHER_HEADERS)
@pytest.mark.parametrize("signed_again", [True, False], ids=["signed again", "as it was signed"])
def test_a_box_moved_behind_another_header_is_refused(change, node, signed_again) -> None:
    changed = OTHER_HEADERS[change](header(CLIENT, node))
    if signed_again:  # by the very client that the new header names
        with pytest.raises(TransplantedCiphertext):
            accept(moved(ENVELOPES[node], changed, changed.holder), node)
    else:
        with pytest.raises(BadSignature):
            accept(changed.encode() + ENVELOPES[node][92:], node)


@pytest.mark.parametrize("node", range(NODES))
def test_a_box_for_one_node_does_not_open_at_another(node: int) -> None:
    other = (node + 1) % NODES
    with pytest.raises(UnopenableCiphertext):
        parse(ENVELOPES[node]).open(box_private_key(other), box_key(other))


def test_another_clients_signature_is_refused() -> None:
    forged = moved(ENVELOPES[SEED_NODE], header(CLIENT, SEED_NODE), CLIENT + 1)
    with pytest.raises(BadSignature):
        accept(forged, SEED_NODE)


@pytest.mark.parametrize(
    ("node", "share", "refusal"),
    [
        (VECTOR_NODE, Share(ShareKind.SEED, bytes(32)), "other kind"),
        (SEED_NODE, Share(ShareKind.VECTOR, bytes(8 * DIMENSION)), "other kind"),
        (SEED_NODE, Share(ShareKind.SEED, bytes(31)), "length"),
        (SEED_NODE, Share(ShareKind.SEED, bytes(33)), "length"),
        (VECTOR_NODE, Share(ShareKind.VECTOR, bytes(8 * DIMENSION - 8)), "length"),
        (VECTOR_NODE, Share(ShareKind.VECTOR, bytes(8 * DIMENSION + 8)), "length"),
        (VECTOR_NODE, Share(ShareKind.VECTOR, bytes(8 * DIMENSION + 1)), "length"),
    ],
)
def test_a_share_of_another_kind_or_length_than_is_due_is_refused(node, share, refusal) -> None:
    encoded = seal(
        share,
        replace(header(CLIENT, node), kind=share.kind),
        box_key=box_key(node),
        key=client_key(CLIENT),
        random_bytes=random_bytes("any"),
    )
    with pytest.raises(WrongShare, match=refusal):
        accept(encoded, node)


def test_what_is_wrong_is_named() -> None:
    encoded = ENVELOPES[SEED_NODE]
    for length in (0, 4, 5, 6, 83, SMALLEST_ENVELOPE - 1):
        with pytest.raises(MalformedEnvelope):
            parse(encoded[:length])
    for version in (0, 2, 255):
        with pytest.raises(UnsupportedVersion):
            parse(encoded[:5] + bytes([version]) + encoded[6:])
    for kind in (2, 255):
        with pytest.raises(MalformedEnvelope, match="kind"):
            parse(encoded[:6] + bytes([kind]) + encoded[7:])


def test_two_seals_of_one_share_differ_unless_the_randomness_is_the_same() -> None:
    def sealed(label: str) -> bytes:
        return seal(
            Share(ShareKind.SEED, bytes(32)),
            header(CLIENT, SEED_NODE),
            box_key=box_key(SEED_NODE),
            key=client_key(CLIENT),
            random_bytes=random_bytes(label),
        )

    assert sealed("one") == sealed("one")
    assert sealed("one")[92:] != sealed("two")[92:]
    assert parse(sealed("one")).digest != parse(sealed("two")).digest


def test_a_share_does_not_fit_behind_a_header_of_the_other_kind() -> None:
    with pytest.raises(ValueError, match="another kind"):
        seal(
            Share(ShareKind.VECTOR, bytes(8)),
            header(CLIENT, SEED_NODE),
            box_key=box_key(SEED_NODE),
            key=client_key(CLIENT),
            random_bytes=random_bytes("any"),
        )


def test_a_box_key_of_small_order_is_not_sealed_to() -> None:
    with pytest.raises(ValueError, match="box key"):
        seal(
            Share(ShareKind.SEED, bytes(32)),
            header(CLIENT, SEED_NODE),
            box_key=bytes(32),
            key=client_key(CLIENT),
            random_bytes=random_bytes("any"),
        )


def test_an_ephemeral_key_of_small_order_is_refused() -> None:
    content = header(CLIENT, SEED_NODE).encode() + bytes(32) + bytes(100)
    signature = client_key(CLIENT).sign(b"shoal/v1/share_envelope\n" + content).signature
    with pytest.raises(UnopenableCiphertext):
        accept(content + signature, SEED_NODE)


def test_the_ephemeral_key_pair_is_drawn_once_with_32_bytes() -> None:
    asked = []

    def draw(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    encoded = seal(
        Share(ShareKind.SEED, bytes(32)),
        header(CLIENT, SEED_NODE),
        box_key=box_key(SEED_NODE),
        key=client_key(CLIENT),
        random_bytes=draw,
    )
    assert asked == [32]
    assert encoded[92:124] == bindings.crypto_scalarmult_base(bytes(32))


def test_a_frame_is_a_little_endian_length_and_the_envelope() -> None:
    assert frame([b"ab", b""]) == b"\2\0\0\0ab\0\0\0\0"


@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=3), st.data())
def test_a_bulk_body_cut_inside_a_frame_is_refused(contents, data) -> None:
    body = frame(contents)
    length = data.draw(st.integers(0, len(body) - 1))
    whole_frames = {len(frame(contents[:count])) for count in range(len(contents))}
    if length in whole_frames:
        assert list(unframe(body[:length])) == contents[: len(list(unframe(body[:length])))]
    else:
        with pytest.raises(MalformedEnvelope):
            list(unframe(body[:length]))


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_arbitrary_bulk_bodies_are_read_or_refused_as_malformed(body: bytes) -> None:
    try:
        contents = list(unframe(body))
    except MalformedEnvelope:
        return
    assert frame(contents) == body


def test_a_frame_that_claims_four_gigabytes_is_refused() -> None:
    with pytest.raises(MalformedEnvelope):
        list(unframe(b"\xff\xff\xff\xff" + bytes(100)))


def test_a_vector_travels_bit_for_bit() -> None:
    vector = np.array([0, 1, 2**64 - 1, 2**63, 12345, 7, 2**32], "<u8")
    encoded = seal(
        Share(ShareKind.VECTOR, vector.tobytes()),
        header(CLIENT, VECTOR_NODE),
        box_key=box_key(VECTOR_NODE),
        key=client_key(CLIENT),
        random_bytes=random_bytes("any"),
    )
    assert np.array_equal(np.frombuffer(accept(encoded, VECTOR_NODE).payload, "<u8"), vector)
