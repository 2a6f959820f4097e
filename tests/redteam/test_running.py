"""What becomes of attacks that cannot be carried out, or fail themselves."""

from collections.abc import AsyncIterator
from typing import cast

import pytest

from shoal_kit.peers.exchange import Reply
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, Verdict, refused, seen
from shoal_redteam.running import run
from shoal_redteam.target import Target


class Scripted(Attack):
    name, liar, tries, stopped_by = "scripted", "a test", "something", "nothing"

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        if self._error is not None:
            yield seen("before", stopped=False, answered="200", check="")
            raise self._error


@pytest.mark.parametrize("error", [CannotAttack("the budget is spent"), RuntimeError("a slip")])
async def test_what_was_found_before_an_attack_broke_off_is_kept(error: Exception) -> None:
    report = await run([Scripted(error)], cast(Target, None))

    verdicts = [each.verdict for each in report.findings["scripted"]]
    assert verdicts == [Verdict.GOT_THROUGH, Verdict.NOT_CARRIED_OUT]
    assert report.exit_status == 1


async def test_an_attack_that_tried_nothing_was_not_carried_out() -> None:
    report = await run([Scripted(None)], cast(Target, None))

    assert report.exit_status == 2


def answer(status: int, code: str = "") -> Reply:
    return Reply(status, f'{{"type":"urn:shoal:problem:{code}"}}'.encode())


def test_a_refusal_counts_only_if_it_names_the_check() -> None:
    def judged(*answers: Reply) -> Verdict:
        by_name = {f"node-{number}": each for number, each in enumerate(answers)}
        return refused("a lie", by_name, by={"bad-signature"}, check="signatures").verdict

    bad = answer(403, "bad-signature")
    assert judged(bad, bad) is Verdict.STOPPED
    assert judged(bad, answer(403, "budget-exceeded")) is Verdict.NOT_CARRIED_OUT
    assert judged(bad, answer(503)) is Verdict.NOT_CARRIED_OUT
    assert judged(bad, answer(201)) is Verdict.GOT_THROUGH
    assert judged() is Verdict.NOT_CARRIED_OUT
