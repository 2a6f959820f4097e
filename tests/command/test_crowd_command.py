"""`shoal crowd` against a real trainer behind real TLS, and a data holder that contributes."""

import json
import socket
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from shoal.jobs.task_files import parse_crowd_file
from shoal_agent.data_holder import DataHolder
from shoal_holder.keys import read_holder_key
from shoal_holder.noise import exact_noise
from shoal_holder.policy import Policy
from shoal_holder.site import Sources
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.startup import read_pin
from shoal_protocol.crowds import draws
from tests.command.running import run
from tests.command.test_job_command import Trial, no_logs, shoal, trainer_of
from tests.world.people import people

__all__ = ["no_logs"]
CLIENTS = 30
CROWD = """
[task]
family = "linear"
epsilon = 0.5
learning_rate = 0.1
clip = 0.05
instances = 3

[features]
age = [18, 90]

[target]
pressure = [80, 180]

[settings]
contributions = 1000
contributions_per_client = 1
open_seconds = 3600
session_seconds = 600
"""
POLICY = Policy(
    analysts=("analyst",),
    queries=(),
    columns=("age", "pressure"),
    maximum_epsilon=1.0,
    delta=0.0,
    minimum_population=20,
    minimum_colluders=1,
    maximum_local_epsilon=1.0,
    crowd_families=("linear",),
    approval="automatic",
)


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    # the trial's clock is moved by hours, and the commands' is not
    monkeypatch.setattr(draws, "CLOCKS_APART", timedelta(days=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        home = tmp_path / "federation"
        arguments = [
            "--clients",
            f"site={CLIENTS}",
            "--first-port",
            str(port - 4),
            "--no-dictionary",
        ]
        made = run("quickstart", home, *arguments, "--maximum-local-epsilon", "1.0")
        assert made.exit_code == 0, made.output
        (home / "crowd.toml").write_text(CROWD)
        yield Trial(home, listener)


def holder_of(trial: Trial) -> DataHolder:
    site = trial.home / "clients" / "site"
    data = trial.home / "data" / "site"
    values = np.column_stack([np.linspace(20.0, 80.0, CLIENTS), np.linspace(90.0, 170.0, CLIENTS)])
    return DataHolder.inside(
        key=read_holder_key(site / "holder.key"),
        records=people(("age", "pressure"), values),
        policy=POLICY,
        book=ManifestBook.open(trial.home / "consortium", read_pin(site), data),
        data_directory=data,
        clock=trial.clock,
        sources=Sources(exact_noise, clock=trial.clock),
        without_nodes=("compute-0", "compute-1", "compute-2"),  # only the trainer runs
    )


@pytest.mark.slow
async def test_a_crowd_job_is_opened_shown_watched_and_verified(trial: Trial) -> None:
    """Over 31 minutes of the trial's clock, in which about half of the clients contribute."""
    async with trainer_of(trial) as step:
        opened = await shoal("crowd", "open", *trial.who, trial.home / "crowd.toml")
        job = opened.stdout.strip()
        listed = await shoal("job", "list", *trial.who, "--json")
        [only] = json.loads(listed.stdout)["crowds"]
        closes = only.pop("closes_at")
        assert only == {
            **{"job": job, "phase": "open", "contributions": 0, "wanted": 1000},
            **{"family": "linear", "analyst": "analyst", "epsilon": only["epsilon"]},
            "approvals": {"waits": 0, "refused": 0, "holders": 1},
        }
        assert only["epsilon"] > 0
        table = (await shoal("job", "list", *trial.who)).stdout
        for fact in (job, "linear", "analyst", "open: 0 of 1,000 contributions", closes[:10]):
            assert fact in table
        holder = holder_of(trial)
        for minutes in (0, 31):
            trial.late = timedelta(minutes=minutes)
            for _ in range(3 * CLIENTS):  # each draws a model, and hands one in
                await holder.step()
        shown = await shoal("crowd", "show", job, *trial.who)
        for fact in (
            job,
            "linear model of pressure",
            "ε = 0.5, local and pure",
            "of 1,000",
        ):
            assert fact in shown.stdout
        found = json.loads((await shoal("crowd", "show", job, *trial.who, "--json")).stdout)
        made = found["state"]["contributions"]
        assert 0 < made < CLIENTS  # not so with probability below 1e-7
        assert "still open" in (await shoal("crowd", "model", job, *trial.who, status=6)).stderr
        assert "still open" in (await shoal("crowd", "verify", job, *trial.who, status=6)).stderr
        now = await shoal("crowd", "model", job, *trial.who, "--snapshot", "--json")
        assert json.loads(now.stdout)["contributions"] == made
        trial.late = timedelta(hours=2)
        await step()
        model = json.loads((await shoal("crowd", "model", job, *trial.who, "--json")).stdout)
        assert set(model["coefficients"]) == {"(intercept)", "age"}
        assert model["instances"] == json.loads(now.stdout)["instances"]
        line = (await shoal("crowd", "model", job, *trial.who)).stdout.splitlines()[-1]
        assert read_start(line) == pytest.approx(model["start"], rel=1e-8)
        assert model["start"] == pytest.approx(np.mean(model["instances"], axis=0) / 2**20)
        verified = await shoal("crowd", "verify", job, *trial.who)
        assert f"All {made} contributions are in 3 unbroken logs" in verified.stdout
        watched = await shoal("crowd", "watch", job, *trial.who)
        assert f"closed: {made} of 1,000 contributions" in watched.stdout
        assert "no standard error" in watched.stdout
        last = (await shoal("crowd", "watch", job, "--json", *trial.who)).stdout.splitlines()[-1]
        assert json.loads(last) == model
        await holder.close()


def read_start(line: str) -> tuple[float, ...]:
    content = tomllib.loads(CROWD.replace("[features]", f"{line}\n[features]"))
    start = parse_crowd_file(content).task.start
    assert start is not None
    return start
