"""The phase tables: what is not in a table does not happen."""

import itertools
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.wire.errors import WrongPhase
from shoal_protocol.wire.phases import (
    FINISHED,
    JOB,
    ROUND,
    Event,
    JobEvent,
    JobPhase,
    Phase,
    after,
)

TABLES: dict[str, tuple[Any, type[StrEnum], type[StrEnum], StrEnum]] = {
    "round": (ROUND, Phase, Event, Phase.ANNOUNCED),
    "job": (JOB, JobPhase, JobEvent, JobPhase.JOINING),
}
NOT_IN_A_TABLE = [
    (name, phase, event)
    for name, (table, phases, events, _) in TABLES.items()
    for phase, event in itertools.product(phases, events)
    if (phase, event) not in table
]


@pytest.mark.parametrize(("name", "phase", "event"), NOT_IN_A_TABLE)
def test_anything_not_in_the_table_is_refused(name: str, phase: StrEnum, event: StrEnum) -> None:
    with pytest.raises(WrongPhase, match=f"{phase} cannot take {event}"):
        after(TABLES[name][0], phase, event)


@given(st.lists(st.sampled_from(Event)))
def test_no_history_leaves_a_finished_phase_or_takes_shares_after_freezing(events) -> None:
    phase, frozen = Phase.ANNOUNCED, False
    for event in events:
        try:
            following = after(ROUND, phase, event)
        except WrongPhase:
            continue
        assert phase not in FINISHED
        assert not (frozen and event is Event.SHARE_STORED)
        frozen = frozen or following is Phase.FROZEN
        phase = following
