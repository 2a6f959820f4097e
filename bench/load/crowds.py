"""A crowd of simulated phones that contribute to one crowd job.

Every draw, step, noise, signature and receipt is real, and checked as a client checks it. What a
phone would do besides, its ledger and its waiting, is left out: only the trainer is to be loaded.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, cast

import nacl.utils
import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from bench.load.lines import Line
from bench.load.metering import Meter, Monotonic, RequestFigures
from bench.load.rounds import made_up_columns, made_up_records
from shoal.jobs.analyst import Analyst, CrowdJob
from shoal.jobs.job_settings import CrowdSettings
from shoal_agent.crowds.trainer import CrowdTrainer
from shoal_holder.crowds.contributor import draw_noise, make_submission
from shoal_holder.crowds.crowd import Crowd, judged, verified
from shoal_holder.crowds.memory import NONCE_BYTES
from shoal_holder.noise import exact_noise
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.outcome import ACKNOWLEDGED
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.crowds.draws import Draw, Submission, SubmissionReceipt, weights_digest
from shoal_protocol.crowds.tasks import CrowdTask, design_rows, steps
from shoal_protocol.wire.documents import Signed, decode

_NOISE_TOGETHER: Final = 1000  # one draw for many phones costs far less than many draws
_TRIES: Final = 8
_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True)
class CrowdFigures:
    """What a crowd did. `links` are digests of the log entries that receipts acknowledge.

    `draws` says of each nonce what the trainer served: instance, revision, digest of the weights.
    """

    seconds: float
    acknowledged: int
    refused: dict[str, int]
    errors: dict[str, int]
    requests: dict[str, RequestFigures]
    links: frozenset[str] = field(repr=False)
    draws: dict[str, tuple[int, int, str]] = field(repr=False)

    @property
    def contributions_per_second(self) -> float:
        """Return how many contributions were drawn for and acknowledged in a second."""
        return self.acknowledged / self.seconds if self.seconds > 0.0 else 0.0

    def as_value(self) -> dict[str, Any]:
        """Return it as a JSON value, without links and draws."""
        value = asdict(replace(self, links=frozenset(), draws={}))
        del value["links"], value["draws"]
        return value | {"contributions_per_second": self.contributions_per_second}


class PhonesTrainer(CrowdTrainer):
    """The trainer as phones ask it, which check what it answers."""

    async def draw(self, crowd: Crowd, nonces: Sequence[str]) -> list[Signed[Draw]]:
        """Return the draws of up to `MOST_AT_ONCE` nonces, verified, in order.

        A busy trainer answers the first of them, at least one.

        Raises:
            CrowdRefused: there is nothing to draw: the job is closed.
            ProtocolError: a draw is not one that an honest trainer makes.
        """
        documents = await self.draw_documents(crowd.job, nonces)
        return [
            verified(decode(document, Draw), crowd, nonce)
            for document, nonce in zip(documents, nonces, strict=False)
        ]

    async def submit(
        self, crowd: Crowd, sent: Sequence[Signed[Submission]]
    ) -> list[tuple[str, bytes | None] | None]:
        """Hand in up to `MOST_AT_ONCE` submissions; None where the same may be sent again later.

        Raises:
            MalformedDocument: the answer does not say what became of each.
        """
        found = await self.submit_documents(crowd.job, [each.encode() for each in sent])
        return [
            None if told is None else judged(crowd, each, *told)
            for each, told in zip(sent, found, strict=True)
        ]


@dataclass
class CrowdLoad:
    """Phones, one for each record, in the first slots of the data holder that has `key`.

    `records`, shape (phones, m), has one record of each, in the order of the task's columns.
    `together` phones share a request, as behind a gateway; with 1 each asks for itself. Up to
    `concurrency` requests are open at once.
    """

    book: ManifestBook
    job: str
    key: SigningKey = field(repr=False)
    records: NDArray[np.float64] = field(repr=False)
    monotonic: Monotonic
    together: int = 1
    concurrency: int = 16
    done: int = 0
    """How many were acknowledged so far."""

    _clients: list[int] = field(default_factory=list, init=False, repr=False)
    _links: set[str] = field(default_factory=set, init=False, repr=False)
    _draws: dict[str, tuple[int, int, str]] = field(default_factory=dict, init=False, repr=False)
    _refused: Counter[str] = field(default_factory=Counter, init=False)

    async def run(self) -> CrowdFigures:
        """Let every phone contribute once.

        Raises:
            Unavailable: the trainer stopped answering.
            CrowdRefused, ProtocolError: it refuses a draw, or what it answers is none.
            ValueError: there are fewer slots than phones.
        """
        consortium = self.book.current
        holder = consortium.roster.holder_with(self.key.verify_key)
        slots = [] if holder is None else list(consortium.roster.slots_of(holder))
        self._clients = slots[: len(self.records)]
        if len(self._clients) < len(self.records):
            raise ValueError("the data holder has fewer slots in the consortium than phones")
        meter = Meter(consortium, self.monotonic, connections=self.concurrency)
        line = Line(consortium.manifest.trainer, meter)
        trainer = PhonesTrainer(lambda: cast(Any, line))  # it asks as a `Peer` does
        try:
            crowd = await trainer.crowd(self.job, consortium)
            waiting = self._groups(crowd)
            begun = self.monotonic()
            async with asyncio.TaskGroup() as group:
                for _ in range(self.concurrency):
                    group.create_task(self._work(trainer, crowd, waiting))
            seconds = self.monotonic() - begun
        finally:
            await meter.close()
        return CrowdFigures(
            seconds=seconds,
            acknowledged=self.done,
            refused=dict(self._refused),
            errors=dict(meter.errors),
            requests=meter.figures(),
            links=frozenset(self._links),
            draws=self._draws,
        )

    def _groups(self, crowd: Crowd) -> Iterator[tuple[range, NDArray[np.int64]]]:
        """Yield the phones that share a request, by position, with noise of their own for each."""
        size = max(self.together, _NOISE_TOGETHER - _NOISE_TOGETHER % self.together)
        for start in range(0, len(self.records), size):
            phones = range(start, min(start + size, len(self.records)))
            noise = draw_noise(crowd.request.task, len(phones), exact_noise)
            for place in range(0, len(phones), self.together):
                yield phones[place : place + self.together], noise[place : place + self.together]

    async def _work(
        self,
        trainer: PhonesTrainer,
        crowd: Crowd,
        waiting: Iterator[tuple[range, NDArray[np.int64]]],
    ) -> None:
        for phones, noise in waiting:
            await self._contribute(trainer, crowd, phones, noise)

    async def _contribute(
        self, trainer: PhonesTrainer, crowd: Crowd, phones: range, noise: NDArray[np.int64]
    ) -> None:
        nonces = [nacl.utils.random(NONCE_BYTES).hex() for _ in phones]
        draws = await self._draw(trainer, crowd, nonces)
        self._draws.update(
            (each.nonce, (each.instance, each.revision, weights_digest(each.weights)))
            for each in (draw.body for draw in draws)
        )
        submissions = [
            make_submission(
                crowd,
                draw,
                self._clients[phone],
                self.key,
                self._step(crowd.request.task, draw, self.records[phone]),
                noise=own,
                random_bytes=nacl.utils.random,
            )
            for phone, draw, own in zip(phones, draws, noise, strict=True)
        ]
        await self._submit(trainer, crowd, submissions)

    @staticmethod
    def _step(
        task: CrowdTask, draw: Signed[Draw], record: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        design = design_rows(task, record[None])
        return steps(task, np.array(draw.body.weights), *design)

    async def _draw(
        self, trainer: PhonesTrainer, crowd: Crowd, nonces: list[str]
    ) -> list[Signed[Draw]]:
        draws, tried = list[Signed[Draw]](), 0
        while len(draws) < len(nonces):
            try:
                draws += await trainer.draw(crowd, nonces[len(draws) :])
            except Unavailable as error:
                tried += 1
                if tried == _TRIES:
                    raise
                await _pause(tried, error.retry_after_seconds)
        return draws

    async def _submit(
        self, trainer: PhonesTrainer, crowd: Crowd, sent: list[Signed[Submission]]
    ) -> None:
        """Send until each has its answer: the same bytes again where there was none."""
        for tried in range(1, _TRIES + 1):
            wished = 0.0
            try:
                outcomes = await trainer.submit(crowd, sent)
            except Unavailable as error:
                outcomes, wished = [None] * len(sent), error.retry_after_seconds
            for outcome in outcomes:
                if outcome is None:
                    continue
                said, receipt = outcome
                if said == ACKNOWLEDGED and receipt:
                    self._links.add(decode(receipt, SubmissionReceipt).body.entry.digest)
                    self.done += 1
                else:
                    self._refused[said] += 1
            sent = [each for each, outcome in zip(sent, outcomes, strict=True) if outcome is None]
            if not sent:
                return
            await _pause(tried, wished)
        raise Unavailable("the trainer does not say what became of submissions")


async def _pause(tried: int, wished_seconds: float) -> None:
    """Leave the trainer in peace for as long as it wishes, and a random part more, as agents do."""
    jitter = int.from_bytes(nacl.utils.random(4), "little") / 2.0**32
    await asyncio.sleep(max(_PAUSE_SECONDS * tried, wished_seconds) * (1.0 + 0.5 * jitter))


def opened(
    analyst: Analyst,
    key: SigningKey,
    *,
    clients: int,
    features: int,
    epsilon: float,
    instances: int,
    together: int,
    concurrency: int,
) -> tuple[CrowdJob, CrowdLoad]:
    """Open a crowd job that ends with one contribution of each client; return it and its phones."""
    columns = made_up_columns(features)
    job = analyst.open_crowd(
        CrowdTask(
            family="linear",
            features=columns[:-1],
            target=columns[-1],
            clip=0.01,
            learning_rate=0.01,
            epsilon=epsilon,
            instances=instances,
        ),
        CrowdSettings(
            contributions=clients,
            contributions_per_client=1,
            session_seconds=600,
            open_seconds=86_400,
        ),
    )
    return job, CrowdLoad(
        book=analyst.book,
        job=job.id,
        key=key,
        records=made_up_records(columns, clients, nacl.utils.random).values,
        monotonic=time.monotonic,
        together=together,
        concurrency=concurrency,
    )
