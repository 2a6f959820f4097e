"""Of two data sets that differ in one client's records nothing that leaves a holder tells which."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal_holder.crowds.contributor import Contributor, Ready
from shoal_holder.jobs import Jobs
from shoal_holder.records import chosen_together
from shoal_holder.rounds import Answers
from shoal_holder.site import Site
from tests.scenarios.neighbours.holders import (
    CASES,
    CLIENTS,
    MANY,
    ROWS,
    Case,
    Rows,
    everybody,
    leaving,
)
from tests.scenarios.neighbours.leaving import difference

pytestmark = pytest.mark.essential

WHOLE: Rows = [(40.0, 110.0)]
NONE: Rows = [(None, None)]
LACKING: Rows = [(40.0, None), (None, 110.0)]
OUTSIDE: Rows = [(1e9, -1e9)]
SEVERAL: Rows = WHOLE * MANY


def first_difference(one: Rows, other: Rows, case: Case, *, at: int = 0) -> str | None:
    """Return where what leaves two data holders differs first, None if nowhere."""
    with TemporaryDirectory() as directory:
        left = []
        for world, rows in enumerate((one, other)):
            home = Path(directory) / str(world)
            rows_of_all = everybody(rows, at=at, bare=case.bare)
            left.append(asyncio.run(leaving(home, rows_of_all, case)))
        found = difference(*left)
        return None if found is None else found.replace(directory, "")


@settings(max_examples=4)
@given(one=ROWS, other=ROWS, at=st.integers(0, CLIENTS - 1), case=CASES)
@example(one=WHOLE, other=NONE, at=0, case=Case("rounds", 1, agent=False))
@example(one=WHOLE, other=SEVERAL, at=3, case=Case("rounds", 2, agent=True))
@example(one=NONE, other=SEVERAL, at=11, case=Case("batches", 5, agent=False))
@example(one=LACKING, other=WHOLE, at=5, case=Case("batches", 1, agent=True))
@example(one=WHOLE, other=OUTSIDE, at=7, case=Case("rounds", 1, agent=True))
@example(one=NONE, other=WHOLE, at=0, case=Case("crowd", 1, agent=False))
@example(one=NONE, other=SEVERAL, at=2, case=Case("crowd", 5, agent=True))
@example(one=NONE, other=WHOLE, at=4, case=Case("crowd", 5, agent=False, bare=True))
@example(one=LACKING, other=SEVERAL, at=11, case=Case("rounds", 2, agent=False, bare=True))
def test_all_that_leaves_a_data_holder_is_the_same_whatever_one_clients_records(
    one: Rows, other: Rows, at: int, case: Case
) -> None:
    assert first_difference(one, other, case, at=at) is None


@pytest.mark.parametrize("agent", [False, True])
@pytest.mark.parametrize("kind", ["rounds", "batches", "crowd"])
async def test_what_is_compared_has_everything_in_it(
    tmp_path: Path, kind: str, agent: bool
) -> None:
    left = await leaving(tmp_path / "one", everybody(WHOLE), Case(kind, 1, agent=agent))
    said = "\n".join(map(repr, left.seen))
    for part in {
        "rounds": ("/memberships", "/shares", "/shares/stored", "job refused", "join settled"),
        "batches": ("/memberships", "/shares", "/shares/stored", "envelope not sent"),
        "crowd": ("/draws", "/submissions", "/closing", "contributions charged", "borne out"),
    }[kind]:
        assert part in said, part
    for part in ("/v1/status", "shoal_agent_events", "log") if agent else ("status", "event"):
        assert part in said, part
    assert left.timer.passed > 0.0


# Planted faults: each must be seen


def declines_by_count(patch: pytest.MonkeyPatch) -> None:
    positions = Site.positions

    started: set[int] = set()

    def few(self: Site) -> dict[int, int]:
        own = positions(self)
        if id(self) not in started:  # it compares the numbers of slots and clients first
            started.add(id(self))
            return own
        return {client: here for client, here in own.items() if self.records.counts[here] <= 1}

    patch.setattr(Site, "positions", few)


def tells_how_many(patch: pytest.MonkeyPatch) -> None:
    end = Jobs.end_those_over

    def told(self: Jobs) -> None:
        self._report("looking", count=len(self._site.records.values))
        end(self)

    patch.setattr(Jobs, "end_those_over", told)


def encodes_after_the_moment(patch: pytest.MonkeyPatch) -> None:
    make = Answers.make

    def late(self: Answers, round_id: str, spec: Any, **slots: Any) -> bool:
        made = make(self, round_id, spec, **slots)
        self.encoded(round_id, spec.query, list(slots["asked"]), slots["used"])
        return made

    patch.setattr(Answers, "make", late)


def contributes_as_often_as_it_has_records(patch: pytest.MonkeyPatch) -> None:
    left = Contributor.left

    def by_records(self: Contributor) -> dict[int, int]:
        found, here = left(self), self._positions()
        return {
            each: min(found[each], int(self._site.records.counts[here[each]])) for each in found
        }

    patch.setattr(Contributor, "left", by_records)


def works_after_the_moment(patch: pytest.MonkeyPatch) -> None:
    work_out = Contributor._work_out

    def late(self: Contributor, chosen: Any) -> Any:
        made = work_out(self, chosen)
        self._designs(chosen)
        return made

    patch.setattr(Contributor, "_work_out", late)


def steps_after_the_moment(patch: pytest.MonkeyPatch) -> None:
    steps = Contributor._steps

    def late(self: Contributor, answered: Sequence[tuple[Ready, Any]]) -> Any:
        made = steps(self, answered)
        for each, draw in answered:
            if each.design is not None:
                self._step(each, draw)
        return made

    patch.setattr(Contributor, "_steps", late)


def waits_for_a_record(patch: pytest.MonkeyPatch) -> None:
    prepare = Contributor.prepare

    def some(self: Contributor) -> bool:
        has_one = bool(np.isfinite(self._site.records.values).all(axis=1).any())
        return has_one and prepare(self)

    patch.setattr(Contributor, "prepare", some)


def _without_a_record(answers: Answers, spec: Any) -> bool:
    site = answers._site
    positions, names = list(site.positions().values()), spec.query.column_names
    _, present = chosen_together(site.records, positions, names, most=1)
    return not present.any(axis=1).all()


def ends_without_a_record(patch: pytest.MonkeyPatch) -> None:
    """Its vault cannot go on, and its process ends with it."""
    make = Answers.make

    def ending(self: Answers, round_id: str, spec: Any, **slots: Any) -> bool:
        if _without_a_record(self, spec):
            raise TimeoutError
        return make(self, round_id, spec, **slots)

    patch.setattr(Answers, "make", ending)


def stays_away_without_a_record(patch: pytest.MonkeyPatch) -> None:
    make = Answers.make

    def refusing(self: Answers, round_id: str, spec: Any, **slots: Any) -> bool:
        return not _without_a_record(self, spec) and make(self, round_id, spec, **slots)

    patch.setattr(Answers, "make", refusing)


PLANTED = [
    (declines_by_count, Case("rounds", 1, False), SEVERAL),
    (declines_by_count, Case("crowd", 1, True), SEVERAL),
    (tells_how_many, Case("rounds", 1, False), SEVERAL),
    (tells_how_many, Case("rounds", 1, True), SEVERAL),
    (encodes_after_the_moment, Case("rounds", 1, False), SEVERAL),
    (encodes_after_the_moment, Case("batches", 1, False), SEVERAL),
    (stays_away_without_a_record, Case("rounds", 1, False), NONE),
    (ends_without_a_record, Case("rounds", 1, False), NONE),
    (ends_without_a_record, Case("batches", 1, True), NONE),
    (contributes_as_often_as_it_has_records, Case("crowd", 1, False), SEVERAL),
    (works_after_the_moment, Case("crowd", 1, False), SEVERAL),
    (steps_after_the_moment, Case("crowd", 5, False), NONE),
    (waits_for_a_record, Case("crowd", 1, False, bare=True), NONE),
]


@pytest.mark.parametrize(
    ("fault", "case", "other"),
    PLANTED,
    ids=[f"{fault.__name__}, {case.kind}, {case.agent}" for fault, case, _ in PLANTED],
)
def test_a_planted_fault_is_seen(
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    case: Case,
    other: Rows,
) -> None:
    fault(monkeypatch)
    assert first_difference(WHOLE, other, case) is not None
