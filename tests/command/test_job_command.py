"""`shoal job` and `shoal ledger` against a trainer and an agent behind real TLS on loopback."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest
import structlog
from typer.testing import Result

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.party import load_party
from shoal_kit.private_files import OPERATOR_TOKEN, token_of
from shoal_kit.security import server_tls
from shoal_kit.startup import read_pin
from shoal_kit.web.serving import server
from shoal_service.view import Operator
from shoal_trainer.assembly import assemble
from tests.command.running import run
from tests.world.consoles import HOSTILE_NAME

TASK = """
[task]
name = "linear_regression"
method = "plain"

[features]
age = [18, 90]

[target]
pressure = [80, 180]

[settings]
epsilon = 1.0
delta = 1e-5
dropouts = 2
colluders = 2
minimum_population = 25
maximum_population = 30
join_seconds = 600
round_seconds = 60
grace_seconds = 60
"""
UNKNOWN = "ab" * 32


NO_DICTIONARY = ["--no-dictionary"]


@dataclass
class Trial:
    """A federation of which only the trainer's port is open, and only while it is served."""

    home: Path
    listener: socket.socket
    late: timedelta = field(default=timedelta(0))

    @property
    def who(self) -> list[str]:
        return [
            *("--party", str(self.home / "parties" / "analyst")),
            *("--consortium", str(self.home / "consortium")),
        ]

    @property
    def data(self) -> Path:
        """Return the trainer's data directory."""
        data = self.home / "data" / "trainer"
        data.mkdir(parents=True, exist_ok=True)
        return data

    @property
    def operator_token(self) -> str:
        return token_of(self.data / OPERATOR_TOKEN)

    @property
    def operator(self) -> list[str]:
        """Return how the trainer's operator calls a command."""
        assert self.operator_token
        return ["--party", str(self.home / "parties" / "trainer"), "--data", str(self.data)]

    @property
    def task(self) -> Path:
        return self.home / "task.toml"

    def clock(self) -> datetime:
        return datetime.now(UTC) + self.late

    def book(self, data: Path) -> ManifestBook:
        return ManifestBook.open(
            self.home / "consortium", read_pin(self.home / "parties" / "trainer"), data
        )

    @asynccontextmanager
    async def serving(
        self, application: object, party: str = "trainer", *, home: Path | None = None
    ) -> AsyncIterator[None]:
        home = home or self.home / "parties" / party
        certificate = (home / "tls.crt").read_text()
        tls = server_tls(home / "tls.crt", home / "tls.key", certificate)
        running = server(application, host="127.0.0.1", port=0, tls=tls, stop_within_seconds=1)
        task = asyncio.create_task(running.serve(sockets=[self.listener]))
        try:
            yield
        finally:
            running.should_exit = True
            await task


def drop(*_: object) -> NoReturn:
    raise structlog.DropEvent


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    """The service runs beside the command, whose standard output is being captured."""
    before = structlog.get_config()
    structlog.configure(processors=[drop], cache_logger_on_first_use=False)
    yield
    structlog.configure(**before)


@pytest.fixture
def trial(tmp_path, request) -> Iterator[Trial]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        home = tmp_path / HOSTILE_NAME
        rules = ["--colluding-holders", "0", "--minimum-holders", "1"]
        arguments = ["--clients", "site=30", *rules, "--first-port", str(port - 4)]
        made = run("quickstart", str(home), *arguments, *getattr(request, "param", NO_DICTIONARY))
        assert made.exit_code == 0, made.output
        (home / "task.toml").write_text(TASK)
        yield Trial(home, listener)


async def shoal(*arguments: object, status: int = 0) -> Result:
    """Run the command beside the service that it asks."""
    result = await asyncio.to_thread(run, *arguments)
    assert result.exit_code == status, result.output
    if status:
        assert isinstance(result.exception, SystemExit)
        assert len(result.stderr.splitlines()) == 1
    return result


@asynccontextmanager
async def trainer_of(trial: Trial) -> AsyncIterator[Callable[[], object]]:
    """Serve a real trainer; yield its step."""
    data = trial.data
    service = assemble(
        party=load_party(trial.home / "parties" / "trainer"),
        book=trial.book(data),
        data_directory=data,
        database_url=None,
        clock=trial.clock,
        operator=Operator(trial.operator_token),
    )
    try:
        async with trial.serving(service.app):
            yield service.step
    finally:
        await service.close()


async def test_a_submitted_job_is_listed_watched_and_ends_without_clients(trial) -> None:
    async with trainer_of(trial) as step:
        submitted = await shoal("job", "submit", *trial.who, trial.task)
        job = submitted.stdout.strip()
        listed = await shoal("job", "list", *trial.who, "--json")
        answer = json.loads(listed.stdout)
        [only] = answer["jobs"]
        assert only["job"] == job and only["phase"] == "joining"
        assert (only["analyst"], only["task"], only["epsilon"]) == (
            "analyst",
            "linear_regression",
            1.0,
        )
        [budget] = answer["budgets"]
        assert budget["clients"] == 30 and budget["left"]["gaussian"] > 0
        table = (await shoal("job", "list", *trial.who)).stdout
        assert job in table and "linear regression of age, pressure" in table
        pending = await shoal("job", "result", job, *trial.who, status=6)
        assert "no posterior yet" in pending.stderr
        trial.late = timedelta(hours=1)
        await step()
        ended = await shoal("job", "watch", job, *trial.who, status=5)
        assert "failed: 0 joined" in ended.stdout
        assert "0 clients joined, 25 are needed: data holder 0: not heard of since" in ended.stderr
        assert (await shoal("job", "result", job, *trial.who, status=5)).stdout == ""
        assert json.loads((await shoal("ledger", "service", *trial.operator, "--json")).stdout) == {
            "entries": [],
            "withdrawn": [],
            "delta": 1e-5,
        }


def test_an_id_that_is_none_never_reaches_a_url(trial) -> None:
    for name in ("abc", "../ledger", UNKNOWN.upper()):
        result = run("job", "result", name, *trial.who)
        assert result.exit_code == 1
        assert "64 hexadecimal digits" in result.stderr


def test_a_party_without_a_pin_trusts_nobody(trial) -> None:
    (trial.home / "parties" / "analyst" / "pin").unlink()
    result = run("job", "list", *trial.who)
    assert result.exit_code == 1
    assert "shoal party pin" in result.stderr
