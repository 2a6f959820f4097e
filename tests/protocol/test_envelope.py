"""The share envelope: whatever is changed, moved or cut off, a Compute node refuses it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_protocol.sharing import summation
from shoal_protocol.sharing.envelope import Header, frame, seal
from shoal_protocol.sharing.received import (
    envelope_size,
    parse,
    unframe,
)
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.service_errors import (
    MalformedEnvelope,
    UnopenableCiphertext,
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


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_arbitrary_bulk_bodies_are_read_or_refused_as_malformed(body: bytes) -> None:
    try:
        contents = list(unframe(body))
    except MalformedEnvelope:
        return
    assert frame(contents) == body
