"""A trainer as two real processes over one PostgreSQL, killed in turn while a crowd contributes."""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from bench.crowd_trainer import Trainer, submissions, task_of
from shoal_consortium.processes import Federation
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    InstanceChain,
    LogEntry,
    SubmissionReceipt,
    broken_draws,
    broken_receipts,
    check_closing,
)
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed, decode
from tests.world.loopback import pinned_client

pytestmark = pytest.mark.slow

CONTRIBUTIONS = 150
INSTANCES = 4
CONTRIBUTORS = 6
KILLS = 2


@pytest.fixture
def processes() -> Iterator[Federation]:
    with Federation() as federation:
        yield federation


async def test_nothing_that_was_acknowledged_is_lost_when_either_process_is_killed(
    tmp_path: Path, postgresql_url: str, processes: Federation
) -> None:
    trainer = Trainer(tmp_path, processes=2, database_url=postgresql_url)
    await asyncio.to_thread(processes.start, *trainer.processes)
    task = task_of(weights=3, instances=INSTANCES, epsilon=1.0)
    job = await trainer.open(task, CONTRIBUTIONS)
    places, progress = iter(range(CONTRIBUTIONS)), asyncio.Event()
    draws: list[Signed[Draw]] = []
    receipts: list[Signed[SubmissionReceipt]] = []

    async def contributor(number: int) -> None:
        service = trainer.addresses[number % 2]
        async with pinned_client(service.certificate, base_url=service.url) as client:
            for place in places:
                nonce = b'{"nonce":"' + secrets.token_hex(32).encode() + b'"}'
                drawn = await ask(client, f"/v1/crowds/{job}/draws", nonce)
                [content] = submissions([drawn], place, trainer.key, task)
                receipt = await ask(client, f"/v1/crowds/{job}/submissions", content)
                draws.append(decode(drawn, Draw))
                receipts.append(decode(receipt, SubmissionReceipt))
                progress.set()

    async def killer() -> None:
        for kill in range(KILLS):
            while len(receipts) < (kill + 1) * CONTRIBUTIONS // (KILLS + 1):
                progress.clear()
                await progress.wait()
            victim = trainer.processes[kill % 2]
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)

    await asyncio.gather(killer(), *(contributor(number) for number in range(CONTRIBUTORS)))
    await asyncio.to_thread(lambda: [each.wait_until_ready() for each in trainer.processes])
    for service in trainer.addresses:  # the job is full: whoever saw it so has closed it
        async with pinned_client(service.certificate, base_url=service.url) as client:
            await check(client, trainer.consortium, job, draws, receipts)


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
        chain = InstanceChain(closing, opening, instance)
        page = (await client.get(f"{where}/log/{instance}")).json()
        entries = [LogEntry.model_validate(each) for each in page["entries"]]
        chain.follow(entries)
        chain.end()
        links |= {entry.digest for entry in entries}
    assert closing.contributions == CONTRIBUTIONS
    assert links == {receipt.body.entry.digest for receipt in receipts}
