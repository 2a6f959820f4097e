"""The red team against real processes, over TLS: nothing gets through."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_consortium import quickstart
from shoal_consortium.processes import Federation as Processes
from shoal_redteam.registry import all_attacks
from tests.end_to_end.holding import logged
from tests.world.trust import SITES, Trust

# their owners allow nothing: the red team has their keys, and answers in their place
POLICY = """
analysts = []
queries = []
columns = []
approval = "automatic"
maximum_epsilon = 1.0
delta = 1e-6
minimum_population = 10
minimum_colluders = 2
"""


@pytest.fixture
def agents(running: Processes, trust: Trust, tmp_path: Path) -> Iterator[Processes]:
    """The sites' agents, up beside the services."""
    for site, clients in SITES.items():
        home = trust.directory / "clients" / site
        (home / "records.csv").write_text(
            "".join(["id,age\n", *(f"person-{each},50\n" for each in range(clients))])
        )
        (home / "policy.toml").write_text(POLICY)
    with Processes() as federation:
        federation.start(
            *(
                logged(each, tmp_path)
                for each in quickstart.agents(trust.directory)
                if each.name in SITES
            )
        )
        yield federation


@pytest.mark.essential
@pytest.mark.slow
def test_the_red_team_is_stopped_by_real_processes(agents: Processes, trust: Trust) -> None:
    command = [sys.executable, "-m", "shoal_command", "redteam", "run", str(trust.directory)]
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
    tried = {finding["tried"] for attack in report["attacks"] for finding in attack["findings"]}
    assert "an agent's ledger, without its owner's token" in tried
    assert "spend, for ever, budget of these 10 clients" in done.stderr
