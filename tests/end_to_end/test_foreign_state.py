"""A party that finds another federation's state says so, and a refused start leaves nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.ports import free_ports
from shoal_consortium import quickstart
from shoal_consortium.processes import Federation
from shoal_kit.manifest_chain import open_chain
from shoal_protocol.trust.roster import key_fingerprint
from tests.command.running import shoal
from tests.end_to_end.holding import logged

REFUSES_TO_START = 78
POLICY = """
analysts = ["analyst"]
queries = ["counts"]
columns = ["age"]
maximum_epsilon = 1.0
delta = 1e-6
minimum_population = 2
minimum_colluders = 0
approval = "automatic"
"""


@pytest.fixture(scope="module")
def federations(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two federations of the same names, the first of which has run."""
    made = []
    for name in ("earlier", "later"):
        home = tmp_path_factory.mktemp("federations") / name
        shoal(
            *("quickstart", home, "--clients", "site=3", "--no-dictionary", "--compute", "2"),
            *("--first-port", free_ports(5)),
        )
        (home / "clients/site/records.csv").write_text("id,age\na,40\nb,50\nc,60\n")
        (home / "clients/site/policy.toml").write_text(POLICY)
        made.append(home)
    earlier = made[0]
    with Federation() as running:
        running.start(*(logged(each, earlier) for each in processes(earlier).values()))
    return earlier, made[1]


def processes(home: Path) -> dict[str, quickstart.Process]:
    newest = open_chain(home / "consortium")[-1]
    started = (*quickstart.services(home, newest), *quickstart.agents(home))
    return {each.name: each for each in started}


def refusal(home: Path, name: str, **environment: str) -> str:
    """Start a party, which must refuse; return the line that it ends with."""
    process = processes(home)[name]
    done = subprocess.run(
        [sys.executable, "-m", process.module],
        env={**os.environ, **process.environment, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == REFUSES_TO_START, done.stderr
    return done.stderr.splitlines()[-1]


def names_both(line: str, earlier: Path, later: Path) -> bool:
    keys = [
        key_fingerprint(bytes.fromhex(open_chain(home / "consortium")[0].manifest.identity))
        for home in (earlier, later)
    ]
    return all(key in line for key in keys) and "another consortium" in line and "move it" in line


@pytest.mark.essential
@pytest.mark.parametrize("name", ["compute-0", "aggregator", "trainer", "site"])
def test_state_of_another_federation_is_called_that(
    federations: tuple[Path, Path], name: str
) -> None:
    earlier, later = federations
    data = earlier / "data" / name
    line = refusal(later, name, SHOAL_DATA=str(data))
    assert names_both(line, *federations), line
    # the earlier one's own party goes on over it
    with Federation() as running:
        running.start(logged(processes(earlier)[name], earlier))


def test_a_database_of_another_federation_is_called_that(
    federations: tuple[Path, Path], postgresql_url: str, tmp_path: Path
) -> None:
    earlier, later = federations
    process = processes(earlier)["compute-0"]
    environment = {"SHOAL_DATABASE_URL": postgresql_url, "SHOAL_DATA": str(tmp_path / "data")}
    with Federation() as running:
        begun = logged(process, earlier)
        begun.environment = {**begun.environment, **environment}
        running.start(begun)
    # its volumes were taken away, and the database's was not; or the other way round
    for given in ({"SHOAL_DATA": str(tmp_path / "new")}, {"SHOAL_DATABASE_URL": ""}):
        line = refusal(later, "compute-0", **environment | given)
        assert names_both(line, *federations), line
