"""Every attack against a simulated federation: nothing gets through, and nothing is left out."""

import pytest

from shoal_redteam.attack import Attack
from shoal_redteam.findings import Verdict
from shoal_redteam.registry import all_attacks
from shoal_redteam.running import run
from shoal_redteam.stage import Stage


@pytest.mark.parametrize("attack", all_attacks(), ids=lambda attack: attack.name)
async def test_an_attack_is_stopped_or_documented(attack: Attack, stage: Stage) -> None:
    report = await run([attack], stage)

    (found,) = report.findings.values()
    bad = [each for each in found if each.verdict in (Verdict.GOT_THROUGH, Verdict.NOT_CARRIED_OUT)]
    assert bad == []
    assert report.exit_status == 0
