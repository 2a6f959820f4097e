"""A simulated crowd's wire and patience: without an answer the same bytes are sent again."""

from typing import Any

import numpy as np
import pytest

from bench.load import crowds
from bench.load.crowds import CrowdLoad
from shoal_holder.crowds.crowd import Crowd
from shoal_kit.outcome import ACKNOWLEDGED
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.crowds.draws import Draw, Submission
from shoal_protocol.wire.documents import Signed
from tests.world.around_holder import World
from tests.world.crowd_examples import (
    CROWD_CONSORTIUM,
    CROWD_DOCUMENTS,
    CROWD_JOB,
    KEY,
    OPENING,
    RECORD,
)


class Flaky:
    """A trainer that is not there at first, then does not know, then acknowledges."""

    def __init__(self) -> None:
        self.nonces: list[str] = []
        self.sent: list[bytes] = []

    async def draw(self, crowd: Crowd, nonce: str) -> Signed[Draw]:
        self.nonces.append(nonce)
        if len(self.nonces) == 1:
            raise Unavailable("not there")
        return CROWD_DOCUMENTS["draw"]

    async def submit(self, crowd: Crowd, sent: Signed[Submission]) -> tuple[str, bytes]:
        self.sent.append(sent.encode())
        if len(self.sent) < 3:
            raise Unavailable("not there")
        return ACKNOWLEDGED, CROWD_DOCUMENTS["submission_receipt"].encode()


async def test_a_phone_asks_with_the_same_nonce_and_sends_the_same_bytes_until_it_is_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowds, "_PAUSE_SECONDS", 0.0)
    crowd = Crowd(CROWD_JOB, OPENING, CROWD_CONSORTIUM)
    load = CrowdLoad(book=world.book, crowd=crowd, key=KEY, records=RECORD, monotonic=lambda: 0.0)
    load._clients = [0]
    trainer: Any = Flaky()
    await load._contribute(trainer, 0, np.array([7]))
    assert trainer.nonces[0] == trainer.nonces[1] and len(trainer.nonces) == 2
    assert len(trainer.sent) == 3 and len(set(trainer.sent)) == 1
    assert load.done == 1
