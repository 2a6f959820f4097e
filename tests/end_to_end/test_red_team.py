"""The red team against real processes, over TLS: nothing gets through."""

import json
import subprocess
import sys

import pytest

from demo.federation import Federation as Processes
from shoal_redteam.registry import all_attacks
from tests.simulated.trust import Trust


@pytest.mark.slow
def test_the_red_team_is_stopped_by_real_processes(running: Processes, trust: Trust) -> None:
    command = [sys.executable, "-m", "shoal_client", "redteam", "run", str(trust.directory)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    bad = [
        finding
        for attack in report["attacks"]
        for finding in attack["findings"]
        if finding["verdict"] in ("got through", "not carried out")
    ]
    assert bad == []
    assert [each["attack"] for each in report["attacks"]] == [each.name for each in all_attacks()]
    assert "spend, for ever, budget of these 10 clients" in done.stderr
