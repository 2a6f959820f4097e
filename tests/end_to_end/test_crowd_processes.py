"""A trainer as two real processes over one PostgreSQL, killed in turn while a crowd contributes."""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from nacl.signing import SigningKey

from bench.drive import SITE, quickstart
from demo.ports import free_ports
from shoal import Analyst
from shoal.jobs.job_settings import CrowdSettings
from shoal_consortium.processes import Federation, Process
from shoal_holder.keys import read_holder_key
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    InstanceChain,
    LogEntry,
    Submission,
    SubmissionReceipt,
    broken_draws,
    broken_receipts,
    check_closing,
)
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed, decode, sign
from tests.world.loopback import pinned_client

pytestmark = pytest.mark.slow

CONTRIBUTIONS = 150
INSTANCES = 4
CONTRIBUTORS = 6
CLIENTS = 10
KILLS = 2
TASK = CrowdTask(
    family="logistic",
    features=tuple(ColumnBounds(name=name, lower=-1.0, upper=1.0) for name in ("x", "z")),
    target=ColumnBounds(name="y", lower=0.0, upper=1.0),
    clip=0.03,
    epsilon=1.0,
    learning_rate=0.03,
    instances=INSTANCES,
)
SETTINGS = CrowdSettings(
    contributions=CONTRIBUTIONS,
    contributions_per_client=CONTRIBUTIONS // CLIENTS,
    session_seconds=3600,
    open_seconds=3600,
)


@pytest.fixture
def federation() -> Iterator[Federation]:
    with Federation() as made:
        yield made


def processes_of_a_trainer(directory: Path, database_url: str) -> list[Process]:
    """Return a trainer's two processes over one database, not started."""
    rules = ["--maximum-local-epsilon", str(TASK.epsilon * CONTRIBUTIONS)]
    *_, first = quickstart(directory, clients={SITE: CLIENTS}, nodes=2, options=rules)
    first.environment = {**first.environment, "SHOAL_DATABASE_URL": database_url}
    for_crowds = {
        "SHOAL_SERVES": "crowds",
        "SHOAL_PORT": str(free_ports(1)),
        "SHOAL_DATA": str(directory / "crowds"),
    }
    second = Process(
        "trainer-1", first.module, first.environment | for_crowds, directory / "trainer-1.log"
    )
    return [first, second]


def submission(drawn: bytes, client: int, key: SigningKey) -> bytes:
    """Return the signed answer to a draw, with no step or noise: neither is the trainer's work."""
    draw = decode(drawn, Draw)
    body = Submission(
        manifest=draw.body.manifest, client=client, draw=draw, weights=draw.body.weights
    )
    return sign(body, "client", key).encode()


async def test_nothing_that_was_acknowledged_is_lost_when_either_process_is_killed(
    tmp_path: Path, postgresql_url: str, federation: Federation
) -> None:
    processes = processes_of_a_trainer(tmp_path, postgresql_url)
    await asyncio.to_thread(federation.start, *processes)
    analyst = Analyst.open(tmp_path / "parties" / "analyst", tmp_path / "consortium")
    crowd = await asyncio.to_thread(analyst.open_crowd, TASK, SETTINGS)
    job, consortium = crowd.id, crowd.crowd.consortium
    key = read_holder_key(tmp_path / "clients" / SITE / "holder.key")
    certificate = consortium.manifest.trainer.certificate
    addresses = [f"https://127.0.0.1:{each.environment['SHOAL_PORT']}" for each in processes]
    places, progress = iter(range(CONTRIBUTIONS)), asyncio.Event()
    draws: list[Signed[Draw]] = []
    receipts: list[Signed[SubmissionReceipt]] = []

    async def contributor(number: int) -> None:
        async with pinned_client(certificate, base_url=addresses[number % 2]) as client:
            for place in places:
                nonce = b'{"nonce":"' + secrets.token_hex(32).encode() + b'"}'
                drawn = await ask(client, f"/v1/crowds/{job}/draws", nonce)
                content = submission(drawn, place % CLIENTS, key)
                receipt = await ask(client, f"/v1/crowds/{job}/submissions", content)
                draws.append(decode(drawn, Draw))
                receipts.append(decode(receipt, SubmissionReceipt))
                progress.set()

    async def killer() -> None:
        for kill in range(KILLS):
            while len(receipts) < (kill + 1) * CONTRIBUTIONS // (KILLS + 1):
                progress.clear()
                await progress.wait()
            victim = processes[kill % 2]
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)

    await asyncio.gather(killer(), *(contributor(number) for number in range(CONTRIBUTORS)))
    await asyncio.to_thread(lambda: [each.wait_until_ready() for each in processes])
    for address in addresses:  # the job is full: whoever saw it so has closed it
        async with pinned_client(certificate, base_url=address) as client:
            await check(client, consortium, job, draws, receipts)


async def ask(client: httpx.AsyncClient, path: str, content: bytes) -> bytes:
    """Send the same bytes until they are answered."""
    while True:
        try:
            answer = await client.post(path, content=content)
        except httpx.HTTPError:
            await asyncio.sleep(0.02)
            continue
        if answer.status_code in (200, 201):
            return answer.content
        assert answer.status_code == 503, answer.text


async def check(
    client: httpx.AsyncClient,
    consortium: Consortium,
    job: str,
    draws: Sequence[Signed[Draw]],
    receipts: Sequence[Signed[SubmissionReceipt]],
) -> None:
    """Follow every chain from the opening to the closing, and look for all that was kept."""
    where = f"/v1/crowds/{job}"
    async with asyncio.timeout(60):
        while (answer := await client.get(f"{where}/closing?wait=20")).status_code != 200:
            assert answer.status_code == 202, answer.text
    closing = decode(answer.content, CrowdClosing).body
    opening = decode((await client.get(f"{where}/opening")).content, CrowdOpening).body
    request = decode((await client.get(f"{where}/request")).content, CrowdJobRequest).body
    check_closing(closing, opening, request, consortium, now=closing.closed_at)
    assert list(broken_draws(draws, closing)) == []
    assert list(broken_receipts(receipts, closing)) == []
    links = set()
    for instance in range(INSTANCES):
        chain = InstanceChain(closing, request.task, instance)
        page = (await client.get(f"{where}/log/{instance}")).json()
        entries = [LogEntry.model_validate(each) for each in page["entries"]]
        chain.follow(entries)
        chain.end()
        links |= {entry.digest for entry in entries}
    assert closing.contributions == CONTRIBUTIONS
    assert links == {receipt.body.entry.digest for receipt in receipts}
