"""A crowd of simulated phones that contribute to one crowd job.

Every draw, step, noise, signature and receipt is real, and checked as a client checks it. What a
phone would do besides, its ledger and its waiting, is left out: only the trainer is to be loaded.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any, Final, TypeVar

import nacl.utils
import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from bench.load.lines import Line
from bench.load.metering import Meter, Monotonic, RequestFigures
from bench.load.rounds import made_up_columns, made_up_records
from shoal.jobs.analyst import Analyst, CrowdJob
from shoal.jobs.job_settings import CrowdSettings
from shoal_holder.crowds.contributor import draw_noise, make_submission
from shoal_holder.crowds.crowd import Crowd, acknowledged, verified
from shoal_holder.noise import exact_noise
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.outcome import ACKNOWLEDGED
from shoal_kit.peers.exchange import JSON, Unavailable
from shoal_protocol.crowds.draws import Draw, Submission, SubmissionReceipt, weights_digest
from shoal_protocol.crowds.tasks import CrowdTask, design_rows, steps
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import canonical_json

_NOISE_TOGETHER: Final = 1000  # one draw for many phones costs far less than many draws
_TRIES: Final = 8
_PAUSE_SECONDS: Final = 0.5
T = TypeVar("T")


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


class CrowdRefused(Exception):
    """The trainer serves no draw; the message holds the refusal's code and detail."""


class PhonesTrainer:
    """The trainer as phones ask it, which check what it answers."""

    def __init__(self, line: Line) -> None:
        """Ask over a line."""
        self._line = line

    async def draw(self, crowd: Crowd, nonce: str) -> Signed[Draw]:
        """Return the draw of a nonce, verified.

        Raises:
            Unavailable: the trainer does not answer, or is busy.
            CrowdRefused: there is nothing to draw: the job is closed.
            ProtocolError: the draw is not one that an honest trainer makes.
        """
        asked = canonical_json({"nonce": nonce})
        answer = await self._line.post(f"/v1/crowds/{crowd.job}/draws", asked, JSON)
        if answer.is_refusal:
            raise CrowdRefused(answer.reason)
        return verified(decode(answer.body, Draw), crowd, nonce)

    async def submit(self, crowd: Crowd, sent: Signed[Submission]) -> tuple[str, bytes]:
        """Hand in a submission; return its outcome, and its receipt if it was acknowledged.

        Raises:
            Unavailable: the trainer does not answer; the same may be sent again later.
            ProtocolError: the receipt is not signed by the trainer.
        """
        path = f"/v1/crowds/{crowd.job}/submissions"
        answer = await self._line.post(path, sent.encode(), JSON)
        if answer.is_refusal:
            return answer.code, b""
        return acknowledged(crowd, sent.body, answer.body), answer.body


@dataclass
class CrowdLoad:
    """Phones, one for each record, in the first slots of the data holder that has `key`.

    `records`, shape (phones, m), has one record of each, in the order of the task's columns.
    Up to `concurrency` requests are open at once.
    """

    book: ManifestBook
    crowd: Crowd
    key: SigningKey = field(repr=False)
    records: NDArray[np.float64] = field(repr=False)
    monotonic: Monotonic
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
        trainer, waiting = PhonesTrainer(line), self._phones()
        try:
            begun = self.monotonic()
            async with asyncio.TaskGroup() as group:
                for _ in range(self.concurrency):
                    group.create_task(self._work(trainer, waiting))
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

    def _phones(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the phones, by position, with noise of their own for each."""
        task = self.crowd.request.task
        for start in range(0, len(self.records), _NOISE_TOGETHER):
            phones = range(start, min(start + _NOISE_TOGETHER, len(self.records)))
            yield from zip(phones, draw_noise(task, len(phones), exact_noise), strict=True)

    async def _work(
        self, trainer: PhonesTrainer, waiting: Iterator[tuple[int, NDArray[np.int64]]]
    ) -> None:
        for phone, noise in waiting:
            await self._contribute(trainer, phone, noise)

    async def _contribute(
        self, trainer: PhonesTrainer, phone: int, noise: NDArray[np.int64]
    ) -> None:
        crowd, nonce = self.crowd, nacl.utils.random(32).hex()
        draw = await _answered(lambda: trainer.draw(crowd, nonce))
        served = draw.body
        self._draws[nonce] = served.instance, served.revision, weights_digest(served.weights)
        submission = make_submission(
            crowd,
            draw,
            self._clients[phone],
            self.key,
            self._step(crowd.request.task, draw, self.records[phone]),
            noise=noise,
            random_bytes=nacl.utils.random,
        )
        said, receipt = await _answered(lambda: trainer.submit(crowd, submission))
        if said == ACKNOWLEDGED:
            self._links.add(decode(receipt, SubmissionReceipt).body.entry.digest)
            self.done += 1
        else:
            self._refused[said] += 1

    @staticmethod
    def _step(
        task: CrowdTask, draw: Signed[Draw], record: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        design = design_rows(task, record[None])
        return steps(task, np.array(draw.body.weights), *design)


async def _answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer: the same again where there was none.

    Raises:
        Unavailable: there is none, several times.
    """
    for tried in count(1):
        try:
            return await ask()
        except Unavailable as error:
            if tried == _TRIES:
                raise
            await _pause(tried, error.retry_after_seconds)
    raise AssertionError


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
        crowd=job.crowd,
        key=key,
        records=made_up_records(columns, clients, nacl.utils.random).values,
        monotonic=time.monotonic,
        concurrency=concurrency,
    )
