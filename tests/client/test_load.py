"""A load's counts are of what really happened; its records are made up and stay in bounds."""

import pytest

from bench.load.crowd_accounts import account_of
from bench.load.crowds import CrowdFigures
from shoal_holder.crowds.crowd import Crowd, LogPage
from shoal_protocol.crowds.draws import weights_digest
from tests.world.crowd_examples import (
    CLOSING,
    CROWD_CONSORTIUM,
    CROWD_JOB,
    DRAW,
    DRAWN,
    ENTRY,
    NONCE,
    OPENING,
)


async def one_log(instance: int, after: int) -> bytes:
    """Show the log of the one contribution that the examples have."""
    assert (instance, after) == (ENTRY.instance, 0)
    return LogPage(entries=[ENTRY], next=None).model_dump_json().encode()


SERVED = weights_digest(DRAW.weights)


@pytest.mark.parametrize(
    ("links", "acknowledged", "draw", "expected"),
    [
        ({ENTRY.digest}, 1, (DRAWN, 0, SERVED), (0, 0, 0, 0)),
        # a receipt for what is in no chain
        ({ENTRY.digest, "f" * 64}, 2, (DRAWN, 0, SERVED), (1, 0, 0, 0)),
        # two receipts for one link
        ({ENTRY.digest}, 2, (DRAWN, 0, SERVED), (0, 1, 0, 0)),
        # another instance than the seed gives, which began with the same weights
        ({ENTRY.digest}, 1, ((DRAWN + 1) % 4, 0, SERVED), (0, 0, 1, 0)),
        # weights, and a revision, that the instance never had
        ({ENTRY.digest}, 1, (DRAWN, 0, "f" * 64), (0, 0, 0, 1)),
        ({ENTRY.digest}, 1, (DRAWN, 5, SERVED), (0, 0, 0, 1)),
    ],
)
async def test_a_crowds_account_finds_what_was_lost_counted_twice_steered_or_forged(
    links: set[str],
    acknowledged: int,
    draw: tuple[int, int, str],
    expected: tuple[int, int, int, int],
) -> None:
    figures = CrowdFigures(
        seconds=1.0,
        acknowledged=acknowledged,
        refused={},
        errors={},
        requests={},
        links=frozenset(links),
        draws={NONCE: draw},
    )
    crowd = Crowd(CROWD_JOB, OPENING, CROWD_CONSORTIUM)
    found = await account_of(one_log, crowd, CLOSING, figures, now=CROWD_JOB.closes_at)
    assert found.linked == 1
    assert (found.lost, found.counted_twice, found.misdrawn, found.forged) == expected
