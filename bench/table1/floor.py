"""The least that Compute nodes could spend: the bare libraries on the same envelopes, in a process.

Each envelope's signature is verified, its box opened and its share added up. There is no network,
no parsing, no check of headers, no store and no gossip.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from nacl import bindings

from bench.drive import phone_key
from shoal_kit.party import load_party
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.envelope import SIGNATURE_BYTES
from shoal_protocol.sharing.received import CONTEXT_BYTES, HEADER_BYTES
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.encoding import domain


class Floor:
    """The CPU seconds of the bare libraries so far."""

    def __init__(self, parties: Path, consortium: Consortium) -> None:
        """Read the box keys of all Compute nodes from the directories of their parties."""
        nodes = consortium.manifest.compute_nodes
        keys = [load_party(parties / node.name).box_key_in(consortium) for node in nodes]
        self._keys = [(bytes(key.public_key), bytes(key)) for key in keys]
        self.cpu_seconds = 0.0

    def add(self, spec: RoundSpec, phones: range, by_node: Sequence[Sequence[bytes]]) -> None:
        """Verify, open and add up the envelopes of some phones, given by node."""
        verify_keys = [bytes(phone_key(phone).verify_key) for phone in phones]
        prefix = domain("share_envelope")
        begun = time.process_time()
        for (public, private), envelopes in zip(self._keys, by_node, strict=True):
            payloads: dict[int, list[bytes]] = {kind: [] for kind in ShareKind}
            for envelope, verify_key in zip(envelopes, verify_keys, strict=True):
                signature = envelope[-SIGNATURE_BYTES:]
                message = prefix + envelope[:-SIGNATURE_BYTES]
                bindings.crypto_sign_open(signature + message, verify_key)
                box = envelope[HEADER_BYTES:-SIGNATURE_BYTES]
                content = bindings.crypto_box_seal_open(box, public, private)
                payloads[envelope[6]].append(content[CONTEXT_BYTES:])
            total = np.zeros(spec.dimension, np.uint64)
            for kind in ShareKind:
                packed = b"".join(payloads[kind])
                added = summation.add_packed(spec.sharing, kind, packed, spec.dimension)
                total = summation.plus(spec.sharing, total, added)
        self.cpu_seconds += time.process_time() - begun
