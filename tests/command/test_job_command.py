"""`shoal job` and `shoal ledger` against a trainer and an agent behind real TLS on loopback."""

import asyncio
import json
import shlex
import socket
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn, get_args

import httpx
import pytest
import structlog
from fastapi import FastAPI, Request, Response
from nacl.signing import SigningKey
from typer.testing import Result

from shoal.jobs.analyst import Job
from shoal.jobs.task_files import TaskName, example, parse_task_file, read_task_file
from shoal_consortium.dictionary_files import versions
from shoal_holder.keys import read_holder_key
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.manifests.manifest_chain import open_chain
from shoal_hosting.operators.view import Operator
from shoal_hosting.party import load_party, read_pin
from shoal_hosting.private_files import OPERATOR_TOKEN, token_of
from shoal_hosting.security import server_tls
from shoal_hosting.server.serving import server
from shoal_protocol.certificates.posterior_report import (
    Participations,
    PosteriorReport,
    PrivacySpent,
)
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.jobs.declarations import HolderDeclaration, HolderRules
from shoal_protocol.jobs.membership import HolderQuery
from shoal_protocol.jobs.privacy_breakdown import BreakdownEntry
from shoal_protocol.privacy.ledger import GENESIS
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.studies.linear_regression import LinearRegressionPosterior
from shoal_protocol.trust.roster import key_fingerprint
from shoal_protocol.wire.documents import Role, sign
from shoal_protocol.wire.encoding import canonical_json
from shoal_trainer.assembly import assemble
from tests.command.running import run
from tests.protocol.test_ledger import LEDGER
from tests.world.consoles import HOSTILE_NAME
from tests.world.logs import prove
from tests.world.parties import client_of

TASK = """
[task]
name = "linear_regression"
method = "plain"

[features]
age = [18, 90]

[target]
pressure = [80, 180]

[privacy]
epsilon = 1.0
delta = 1e-5
dropouts = 2
colluders = 2

[population]
minimum = 25
maximum = 30

[deadlines]
join = 600
round = 60
grace = 60
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
        return [*self.who, "--data", str(self.data)]

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
        assert json.loads((await shoal("ledger", "trainer", *trial.operator, "--json")).stdout) == {
            "entries": [],
            "head": {"number": 0, "digest": GENESIS},
            "withdrawn": [],
        }


@pytest.mark.slow
async def test_an_interrupted_wait_says_that_the_job_goes_on(trial, monkeypatch) -> None:
    def interrupted(self: Job, progress: object = None) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "wait", interrupted)
    async with trainer_of(trial):
        submitted = await shoal("job", "submit", "--wait", *trial.who, trial.task, status=6)
        listed = await shoal("job", "list", *trial.who, "--json")
        [job] = json.loads(listed.stdout)["jobs"]
        watched = await shoal("job", "watch", job["job"], "--json", *trial.who, status=6)
    again = shlex.join(["shoal", "job", "watch", job["job"], *trial.who])
    for result in (submitted, watched):
        assert "the job goes on" in result.stderr and again in result.stderr


async def test_a_job_beyond_the_policy_is_refused_with_the_trainers_reason(trial) -> None:
    trial.task.write_text(TASK.replace("epsilon = 1.0", "epsilon = 11.0"))
    async with trainer_of(trial):
        refused = await shoal("job", "submit", *trial.who, trial.task, status=3)
    assert "epsilon" in refused.stderr


DICTIONARY = """
[variables.age]
meaning = "age"
type = "number"
lower = 18
upper = 90

[variables.pressur]
meaning = "pressure"
type = "number"
lower = 80
upper = 180
"""


async def test_a_job_is_withdrawn_for_good_once_that_is_confirmed(trial) -> None:
    async with trainer_of(trial):
        job = (await shoal("job", "submit", *trial.who, trial.task)).stdout.split()[-1]
        for name, answer in (("withdraw", None), ("cancel", "n")):
            asked = await asyncio.to_thread(run, "job", name, job, *trial.who, asked=answer)
            assert asked.exit_code == 1 and "nothing was done" in asked.stderr
            assert f"Job {job} of analyst" in asked.stderr and "joining: 0 joined" in asked.stderr
        withdrawn = await shoal("job", "withdraw", job, *trial.who, "--yes", "--json")
        assert json.loads(withdrawn.stdout) == {"job": job, "phase": "withdrawn"}


async def test_a_job_is_checked_against_the_dictionary_before_it_is_submitted(trial) -> None:
    async with trainer_of(trial):
        none = await shoal("job", "variables", *trial.who, status=3)
        assert "unknown-dictionary" in none.stderr
        (trial.home / "dictionary.toml").write_text(DICTIONARY)
        consortium = trial.home / "consortium"
        await shoal(
            *("dictionary", "sign", trial.home / "dictionary.toml"),
            *("--consortium", consortium, "--authority", trial.home / "authority"),
        )
        await shoal("dictionary", "publish", consortium)
        shown = json.loads((await shoal("job", "variables", *trial.who, "--json")).output)
        assert [each["name"] for each in shown] == ["age", "pressur"]
        for command, status in (("check", 1), ("submit", 3)):
            refused = await shoal("job", command, *trial.who, trial.task, status=status)
            assert "column 'pressure' is not in the consortium's data dictionary" in refused.stderr
            assert "near to it are pressur" in refused.stderr


@pytest.mark.parametrize("trial", [[]], indirect=True, ids=["as it is"])
async def test_a_quickstart_refuses_a_misspelt_column_at_once_by_its_own_dictionary(trial) -> None:
    directory = trial.home / "consortium"
    async with trainer_of(trial):
        trial.task.write_text(TASK.replace("pressure =", "systolic_presure ="))
        for command, status in (("check", 1), ("submit", 3)):
            refused = await shoal("job", command, *trial.who, trial.task, status=status)
            assert "data dictionary; near to it are systolic_pressure" in refused.stderr
    found = versions(directory)[-1].body
    for name in get_args(TaskName):
        if name != "numpyro_model":
            columns = parse_task_file(tomllib.loads(example(name))).task.columns
            assert found.fault_of(columns, as_levels=False) is None


async def ask_for_jobs(http: httpx.AsyncClient, trial: Trial, key: SigningKey) -> NoReturn:
    """Ask the trainer for jobs as the site's agent does, again and again."""
    manifest = trial.book(trial.home / "data" / "site").current.digest
    while True:
        query = HolderQuery(manifest=manifest, holder=0, at=trial.clock())
        await http.post("/v1/jobs/joining", content=sign(query, Role.HOLDER, key).encode())
        await asyncio.sleep(0.2)


async def test_a_check_says_who_would_answer_and_which_services_are_away(trial) -> None:
    key = read_holder_key(trial.home / "clients" / "site" / "holder.key")
    body = HolderDeclaration(
        manifest=trial.book(trial.home / "data" / "site").current.digest,
        holder=0,
        declared_at=trial.clock(),
        variables=("age", "pressure"),
        rules=HolderRules(
            analysts=("analyst",),
            queries=("second_moments", "second_moment_matrix"),
            columns=("age", "pressure"),
            delta=1e-5,
            minimum_population=25,
            minimum_colluders=2,
        ),
    )
    async with trainer_of(trial) as step:
        unknown = await shoal("job", "check", *trial.who, trial.task, status=1)
        assert "0 clients would answer, 25 are needed" in unknown.stderr
        async with client_of(step.__self__.app) as http:
            declared = sign(body, Role.HOLDER, key).encode()
            assert (await http.post("/v1/declarations", content=declared)).status_code == 201
            asking = asyncio.create_task(ask_for_jobs(http, trial, key))
            shown = await shoal("job", "check", *trial.who, trial.task, status=1)
            short = ("job", "check", "--json", *trial.who, trial.task)
            facts = json.loads((await shoal(*short, status=1)).stdout)
            brief = json.loads((await shoal(*short, "--no-simulate", status=1)).stdout)
            asking.cancel()
        assert "30 clients, of 25 that are needed" in shown.stdout
        assert "Known to data holders alone: caps" in shown.stdout
        assert (
            "Errors to expect" in shown.stdout and "Assumed: values spread evenly" in shown.stdout
        )
        assert "compute-0 is away: it refuses connections" in " ".join(shown.stdout.split())
        assert brief["expected_errors"] is None
        assert [each["name"] for each in facts["expected_errors"]] == ["intercept", "age"]
        [advice], [holder] = facts["advice"], facts["holders"]
        assert "aggregator and 3 of 3 Compute nodes are needed" in advice
        assert holder.pop("heard_at") is not None
        assert holder == {"holder": 0, "slots": 30, "able": 30, "reason": None}
        assert json.loads((await shoal("job", "list", *trial.who, "--json")).output)["jobs"] == []
        assert facts["price"]["epsilon"] == 1.0 < facts["left"]["gaussian"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("epsilon", "epsilom", "epsilon"),
        ("[18, 90]", "[90, 18]", "lower bound"),
        ("[18, 90]", "[18]", "features.age"),
        ("minimum = 25", "minimum = 3", "minimum_population"),
        ("pressure = [80, 180]", "", "target"),
        ("[task]", "[task", "TOML"),
        ('name = "linear_regression"', 'name = "horoscope"', "name"),
        ("delta = 1e-5", "delta = 2", "delta"),
    ],
)
def test_what_is_wrong_with_a_task_file_is_named_before_anybody_is_asked(
    trial, old, new, named
) -> None:
    trial.task.write_text(TASK.replace(old, new))
    result = run("job", "submit", *trial.who, trial.task)
    assert result.exit_code == 1
    assert named in result.stderr
    assert len(result.stderr.splitlines()) == 1
    for jargon in ("Value error", "Input should", "Extra inputs", "Field required"):
        assert jargon not in result.stderr


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


def test_a_submission_that_nobody_answers_is_given_up_after_a_word(trial, monkeypatch) -> None:
    async def sleep(seconds: float) -> None:
        return

    port = trial.listener.getsockname()[1]
    trial.listener.close()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    result = run("job", "submit", *trial.who, trial.task)
    assert result.exit_code == 4
    told, ended = result.stderr.splitlines()
    silent = f"the trainer at https://127.0.0.1:{port} does not answer"
    assert told.startswith(f"Warning: {silent}: ") and told.endswith("; trying again")
    assert f"could not be reached: {silent}" in ended


async def test_a_trainer_with_another_certificate_is_not_asked(trial) -> None:
    application = FastAPI()
    asked = []

    @application.get("/v1/ledger")
    def ledger() -> dict[str, object]:
        asked.append(True)
        return {"entries": []}

    async with trial.serving(application, party="compute-0"):
        await shoal("ledger", "trainer", *trial.operator, status=4)
    assert asked == []


def report(trial: Trial, request: StudyRequest) -> PosteriorReport:
    return PosteriorReport(
        manifest=request.manifest,
        job=request.digest,
        rounds=("cd" * 32,),
        results=("ef" * 32,),
        lost_rounds=(),
        population_size=30,
        participations=Participations(least=1, most=1),
        cohort_sizes=(29,),
        sharing=request.sharing,
        compute_nodes=(3,),
        partial_sums=(3,),
        privacy=PrivacySpent(
            epsilon=0.75,
            delta=1e-5,
            mu=0.2,
        ),
        breakdown=(BreakdownEntry(query="second_moment_matrix", rounds=1, share=1.0),),
        posterior=LinearRegressionPosterior(
            names=("intercept", "age"),
            target="pressure",
            coefficients=(100.0, 0.5),
            covariance=((4.0, 0.0), (0.0, 0.01)),
            residual_sd=9.0,
            records=29,
        ),
    )


def request_of(trial: Trial) -> tuple[object, StudyRequest]:
    file = read_task_file(trial.task)
    body = StudyRequest(
        manifest=trial.book(trial.home / "data" / "trainer").current.digest,
        nonce="00" * 16,
        analyst="analyst",
        task=file.task,
        terms=file.task.terms(least=25, most=30),
        privacy=file.settings.privacy,
        minimum_population=25,
        maximum_population=30,
        join_deadline=datetime(2030, 1, 1, tzinfo=UTC),
        round_seconds=60,
        grace_seconds=60,
        sharing=ADDITIVE,
    )
    key = load_party(trial.home / "parties" / "analyst").signing_key
    return sign(body, "analyst", key), body


def finished_job(trial: Trial, *, report_by: str) -> tuple[FastAPI, str, bytes]:
    """Return a trainer that has one job's report, signed as `trainer` with the key of a party."""
    signed_request, request = request_of(trial)
    key = load_party(trial.home / "parties" / report_by).signing_key
    encoded = sign(report(trial, request), "trainer", key).encode()
    application = FastAPI()
    place = f"/v1/jobs/{request.digest}"
    state = {
        "job": request.digest,
        "phase": "finished",
        "joined": 30,
        "population_size": 30,
        "round_counts": {"published": 1},
        "rounds": [
            {
                "round": "cd" * 32,
                "number": 0,
                "phase": "published",
                "deadline": "2030-01-01T00:00:00.000Z",
            }
        ],
        "reason": None,
    }

    @application.get(place)
    def show() -> Response:
        return Response(canonical_json(state), media_type="application/json")

    @application.get(f"{place}/request")
    def show_request() -> Response:
        return Response(signed_request.encode(), media_type="application/json")

    @application.get(f"{place}/result")
    def show_result() -> Response:
        return Response(encoded, media_type="application/json")

    return application, request.digest, encoded


async def test_a_posterior_is_shown_with_its_intervals_its_cohort_and_its_price(trial) -> None:
    application, job, _ = finished_job(trial, report_by="trainer")
    async with trial.serving(application):
        shown = (await shoal("job", "result", job, *trial.who)).stdout
        watched = (await shoal("job", "watch", job, *trial.who)).stdout
    for text in (shown, watched):
        for fact in (
            *(
                "Linear regression of pressure",
                "intercept",
                *("96.08", "103.92"),
                *("0.304", "0.696"),
            ),
            "cd" * 32,
            *("29 of 30 clients", "epsilon 0.75 at delta 1e-05"),
            "100 % for moments of the columns",
        ):
            assert fact in text
    assert "finished: 30 joined; 1 of 1 rounds published; round 0 published" in watched
    assert f"Round 0 is {'cd' * 32}\n" in watched


async def test_a_report_that_the_trainer_did_not_sign_is_not_shown(trial) -> None:
    application, job, _ = finished_job(trial, report_by="compute-0")
    async with trial.serving(application):
        refused = await shoal("job", "result", job, *trial.who, status=3)
    assert "signature" in refused.stderr
    assert refused.stdout == ""


async def test_an_agents_ledger_is_read_page_by_page_with_the_owners_token(trial) -> None:
    pages = {0: ([1, 2], 2), 2: ([3], None)}
    tokens = []
    application = FastAPI()

    @application.get("/v1/ledger")
    def ledger(request: Request, after: int) -> dict[str, object]:
        tokens.append(request.headers["Authorization"])
        entries, following = pages[after]
        return {
            "spent": {
                "clients": 3,
                "delta": 1e-5,
                "epsilon": {"least": 0.5, "median": 0.5, "most": 0.75},
                "maximum_epsilon": 5.0,
                "left": {"pure": 4.25, "gaussian": 0.0},
            },
            "entries": [
                {
                    "entry": entry,
                    "job": UNKNOWN,
                    "number": 0,
                    "round": "cd" * 32,
                    "client": entry,
                    "mu": 0.2,
                    "epsilon": None,
                    "at": "2026-03-01T12:00:00.000Z",
                }
                for entry in entries
            ],
            "next": following,
        }

    @application.get("/v1/ledger/chain")
    def chain(request: Request, after: int) -> dict[str, object]:
        tokens.append(request.headers["Authorization"])
        entry = LEDGER[after]
        following = after + 1 if after + 1 < len(LEDGER) else None
        shown = entry.model_dump(mode="json") | {"digest": entry.digest}
        return {"entries": [shown], "next": following}

    token = trial.home / "owner.token"
    token.write_text("s3cret-token\n")
    token.chmod(0o600)
    port = trial.listener.getsockname()[1]
    options = [
        *("--agent", trial.home / "parties" / "trainer", "--data", trial.home),
        *("--url", f"https://127.0.0.1:{port}"),
    ]
    async with trial.serving(application):
        shown = await shoal("ledger", "agent", *options)
        as_json = await shoal("ledger", "agent", *options, "--json")
    assert "3 clients" in shown.stdout
    assert "most 0.75" in shown.stdout
    assert "epsilon" in shown.stdout and "mu" not in shown.stdout
    assert "infinite" not in shown.stdout  # of Gaussian entries it would only alarm
    assert "epsilon 4.25 for pure jobs, nothing for Gaussian jobs" in shown.stdout
    printed = json.loads(as_json.stdout)
    assert [each["entry"] for each in printed["clients"]] == [1, 2, 3]
    assert printed["head"] == {"number": 5, "digest": LEDGER[-1].digest}
    assert [each["digest"] for each in printed["entries"]] == [each.digest for each in LEDGER]
    assert f"unbroken chain of 5 entries; the last one's digest is {LEDGER[-1].digest}" in (
        shown.stdout
    )
    assert set(tokens) == {"Bearer s3cret-token"}
    assert "s3cret-token" not in shown.output + as_json.output


async def test_publishing_says_who_did_not_take_the_version_and_hands_out_the_dictionary(
    trial,
) -> None:
    (trial.home / "dictionary.toml").write_text(DICTIONARY)
    by = ["--consortium", trial.home / "consortium", "--authority", trial.home / "authority"]
    async with trainer_of(trial):
        await shoal("dictionary", "sign", trial.home / "dictionary.toml", *by)
        holder = key_fingerprint(open_chain(trial.home / "consortium")[-1].roster.key_of(0))
        revoke = ["consortium", "revoke", trial.home / "consortium", holder, *by[2:], "--publish"]
        unlogged = await asyncio.to_thread(run, *revoke)
        assert unlogged.exit_code == 4  # the aggregator does not answer
        assert "Version 2, digest" in unlogged.stdout
        prove(trial.home / "consortium", trial.home / "parties")
        published = await asyncio.to_thread(
            run, "consortium", "publish", trial.home / "consortium", "--json"
        )
        shown = json.loads((await shoal("job", "variables", *trial.who, "--json")).output)
    assert [each["name"] for each in shown] == ["age", "pressur"]
    outcome = json.loads(published.stdout)
    accepted = {each["name"]: each["accepted"] for each in outcome["services"]}
    assert accepted == {
        "compute-0": False,
        "compute-1": False,
        "compute-2": False,
        "aggregator": False,
        "trainer": True,
        "trainer: data dictionary": True,
    }
    assert published.exit_code == 4
