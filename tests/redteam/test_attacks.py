"""Every attack against a simulated federation: nothing gets through, and nothing is left out."""

import pytest

from shoal_redteam.attack import Attack
from shoal_redteam.findings import Finding, Verdict
from shoal_redteam.registry import all_attacks
from shoal_redteam.running import Report, run
from shoal_redteam.target import Target


def failures(report: Report) -> list[Finding]:
    bad = (Verdict.GOT_THROUGH, Verdict.NOT_CARRIED_OUT)
    return [each for found in report.findings.values() for each in found if each.verdict in bad]


@pytest.mark.exhaustive  # real processes are attacked by each of them, too
@pytest.mark.parametrize("attack", all_attacks(), ids=lambda attack: attack.name)
async def test_an_attack_is_stopped_or_documented(attack: Attack, target: Target) -> None:
    report = await run([attack], target)

    assert failures(report) == []
    assert report.exit_status == 0


@pytest.mark.slow
@pytest.mark.exhaustive
async def test_all_attacks_one_after_another_under_another_policy(other_target: Target) -> None:
    report = await run(all_attacks(), other_target)

    assert failures(report) == []
    assert list(report.findings) == [each.name for each in all_attacks()]
