"""Every question of both protocols, of places of every shape, and with faults at every step."""

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import pytest

from shoal_holder import faults, rounds
from shoal_holder.crowds import contributor
from shoal_holder.crowds.contributor import Contributor, Ready
from shoal_holder.rounds import Answers
from shoal_holder.vault import Vault
from shoal_protocol.queries import QueryName
from tests.scenarios.neighbours.holders import Case, Rows, everybody, leaving
from tests.scenarios.neighbours.leaving import Leaving, difference
from tests.scenarios.neighbours.played import CROWDS_PLAYED, STUDIES_PLAYED, columns_of, shapes

pytestmark = pytest.mark.slow

STUDIES = Case("studies", 1, False, columns_of(*STUDIES_PLAYED), studies=STUDIES_PLAYED)
CROWDS = [Case("crowd", 2, False, columns_of(task), crowd=task) for task in CROWDS_PLAYED]


def left_by(directory: Path, rows: Rows, case: Case, name: str) -> Leaving:
    """Return what left a data holder of whom one place has these rows; names tell nothing."""
    home = directory / name.ljust(20, "-")
    return asyncio.run(leaving(home, everybody(rows, columns=case.columns), case))


def apart(one: Leaving, other: Leaving, directory: Path) -> str | None:
    """Return where what left two data holders differs first, None if nowhere."""
    found = difference(one, other)
    return None if found is None else found.replace(str(directory), "")


@pytest.mark.parametrize(
    "case", CROWDS, ids=lambda case: f"{case.crowd.family}, {case.crowd.variant}"
)
def test_no_crowd_tells_which_shape_a_place_has(tmp_path: Path, case: Case) -> None:
    first, *others = (
        left_by(tmp_path, rows, case, name) for name, rows in shapes(len(case.columns)).items()
    )
    assert sum("/submissions" in said for _, _, said in first.seen) > 2
    for other in others:
        assert apart(first, other, tmp_path) is None
    assert not any(each.faults for each in (first, *others))


def test_no_study_tells_which_shape_a_place_has(tmp_path: Path) -> None:
    first, *others = (
        left_by(tmp_path, rows, STUDIES, name)
        for name, rows in shapes(len(STUDIES.columns)).items()
    )
    assert {query.name for _, query in first.asked} == set(get_args(QueryName))
    for other in others:
        assert apart(first, other, tmp_path) is None
    assert not any(each.faults for each in (first, *others))


# Faults in the code that works on records: nothing of them leaves


class Fault(Exception):
    """A fault that one place's records cause."""


MARK = 41.5  # in every column of one place's only row
PLACE = 3
STEPS = {"Contributor._step", "Contributor._note_failed"}
"""What is handed a record, and has what uses it tried by `without_failing`."""


class Planted:
    """Calls in a vault that work on a portion with one slot in it; fails in some of them.

    In the n-th piece of work on records, each call of `targets[n]` fails.
    """

    def __init__(self, targets: dict[int, str] | None = None) -> None:
        self.targets = targets or {}
        self.calls: dict[str, int] = {}
        """Functions that were called, by name, and in which piece of work first."""
        self.unguarded: set[str] = set()
        """Functions that were handed the record elsewhere."""
        self.failed: set[int] = set()
        """The pieces of work in which a call failed."""
        self.slot = -1
        """The slot that the place has, by chance."""
        self._work, self._is_tried = -1, False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch all vaults of this process."""
        whole, tried = Vault.answer, faults.without_failing

        def answer(vault: Vault, frame: bytes) -> bytes:
            positions = vault._site.positions().items()
            [self.slot] = (slot for slot, position in positions if position == PLACE)
            sys.setprofile(self._see)
            try:
                return whole(vault, frame)
            finally:
                sys.setprofile(None)

        def counted(work: Callable[..., Any]) -> Callable[..., Any]:
            def begun(*given: Any, **more: Any) -> Any:
                self._work += 1
                return work(*given, **more)

            return begun

        def trying(items: Any, work: Callable[[Any], Any], failed: Any) -> Any:
            def watched(portion: Any) -> Any:
                self._is_tried = self.slot in [_slot_of(each) for each in portion]
                sys.setprofile(self._see)  # which a fault ends
                try:
                    return work(portion)
                finally:
                    self._is_tried = False

            return tried(items, watched, failed)

        with (
            patch.object(Vault, "answer", answer),
            patch.object(Answers, "make", counted(Answers.make)),
            patch.object(Contributor, "prepare", counted(Contributor.prepare)),
            patch.object(Contributor, "contribute", counted(Contributor.contribute)),
            patch.object(rounds, "without_failing", trying),
            patch.object(contributor, "without_failing", trying),
        ):
            yield

    def _see(self, frame: Any, event: str, _: object) -> None:
        name, file = frame.f_code.co_qualname, frame.f_code.co_filename
        if event != "call" or "/shoal_" not in file:
            return
        if not self._is_tried:
            if any(map(_is_marked, frame.f_locals.values())):
                self.unguarded.add(name)
            return
        if any(isinstance(each, np.ndarray | list) for each in frame.f_locals.values()):
            self.calls.setdefault(name, self._work)
            if self.targets.get(self._work) == name:
                self.failed.add(self._work)
                raise Fault


def _slot_of(item: Any) -> int:
    return item.client if isinstance(item, Ready) else item


def _is_marked(value: object) -> bool:
    if isinstance(value, Ready) and value.design is not None:
        return any(map(_is_marked, value.design))
    return isinstance(value, np.ndarray) and bool(np.any(value == MARK))


def left_with(directory: Path, case: Case, planted: Planted, name: str) -> Leaving:
    with planted.watching():
        rows = [[MARK] * len(case.columns)]
        left = asyncio.run(
            leaving(directory / name, everybody(rows, at=PLACE, columns=case.columns), case)
        )
    assert planted.unguarded <= STEPS
    return left


def test_no_fault_that_a_slots_records_cause_in_a_round_shows_and_the_owner_finds_it(
    tmp_path: Path,
) -> None:
    """Each function that works on records fails in a round of its own."""
    first = Planted()
    left_with(tmp_path, STUDIES, first, "first")
    by_round: dict[int, list[str]] = {}
    for name, number in first.calls.items():
        by_round.setdefault(number, []).append(name)
    studies, targets, played, before = list[Any](), dict[int, str](), 0, 0
    for task in STUDIES_PLAYED:
        rounds = sum(kind.rounds for kind in task.terms(least=10, most=100).kinds)
        own = [by_round.get(before + number, []) for number in range(rounds)]
        for copy in range(max(map(len, own))):
            names = {played + number: each[copy] for number, each in enumerate(own) if each[copy:]}
            targets, played = targets | names, played + rounds
            studies.append(task)
        before += rounds
    assert sorted(targets.values()) == sorted(first.calls) and len(targets) > 40

    case, planted = replace(STUDIES, studies=tuple(studies)), Planted(targets)
    rows = [[MARK] * len(case.columns)]
    whole = asyncio.run(
        leaving(tmp_path / "a", everybody(rows, at=PLACE, columns=case.columns), case)
    )
    failing = left_with(tmp_path, case, planted, "b")
    assert apart(whole, failing, tmp_path) is None
    assert planted.failed == targets.keys()
    lines = failing.faults.splitlines()
    assert whole.faults == ""
    for line, number in zip(lines, sorted(targets), strict=True):
        assert f"slot {planted.slot} count for none in {failing.asked[number][0]}: Fault, " in line
    assert str(MARK) not in failing.faults


def test_no_fault_that_a_slots_records_cause_in_a_crowd_shows_and_the_owner_finds_it(
    tmp_path: Path,
) -> None:
    case, first = CROWDS[0], Planted()
    whole = left_with(tmp_path, case, first, "first")
    assert len(first.calls) > 15
    for name in first.calls:
        planted = Planted(dict.fromkeys(range(1000), name))
        failing = left_with(tmp_path, case, planted, "other")
        shutil.rmtree(tmp_path / "other")
        assert apart(whole, failing, tmp_path) is None, name
        assert planted.failed, name
