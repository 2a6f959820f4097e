"""A simulated crowd contributes to one crowd job over TLS, each phone once: rates and unit costs.

    python -m bench.crowd [--contributions 100000] [--together 1] [--concurrency 64]

The trainer is a real process with its database on disk; the phones are one process beside it. Every
contribution is one draw, one step with exact noise, one signed submission and one receipt, each
checked. At the end the closing, all logs and all receipts are compared: whatever was acknowledged
must be in an instance's chain, once.
"""

import asyncio
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import nacl.utils
import numpy as np

from bench.command import options, show
from bench.drive import SITE, quickstart
from bench.load.crowd_accounts import account_of
from bench.load.crowds import CrowdFigures, CrowdLoad
from bench.planner import outcomes
from bench.processes import cpu_seconds, disk_bytes, peak_memory_mib
from shoal.planning import Study, assume, crowd_task, draw_and_discard
from shoal_agent.crowds.trainer import CrowdTrainer
from shoal_command.connection import open_book
from shoal_consortium.processes import Federation, Process
from shoal_holder.keys import read_holder_key
from shoal_hosting.clock import system_clock
from shoal_hosting.party import load_party
from shoal_hosting.peers.peer import Peer
from shoal_learning.crowds.simulation import CrowdModel
from shoal_protocol.crowds.draws import CrowdClosing, CrowdJobRequest
from shoal_protocol.wire.documents import Signed, sign

EPSILON: Final = 4.0
FEATURES: Final = 5
INSTANCES: Final = 20
SESSION_SECONDS: Final = 600
_WAIT_SECONDS: Final = 20


def study(contributions: int, open_sessions: int) -> Study:
    """Return what the crowd learns: a linear regression, at the learning rate that suits it."""
    return Study(
        family="linear",
        clients=contributions,
        features=FEATURES,
        epsilon=EPSILON,
        delta=0.0,
        instances=INSTANCES,
        open_sessions=open_sessions,
    )


class _Job:
    """A crowd job at a trainer that runs, and the phones' way to it."""

    def __init__(self, directory: Path, trainer: Process, wanted: Study) -> None:
        self.directory, self.process = directory, trainer
        self.book = open_book(directory / "parties" / "analyst", directory / "consortium")
        self.study = wanted
        self.prospect = draw_and_discard(self.study)
        self.task = crowd_task(self.study, float(self.prospect.settings["learning rate"]))
        self.peer = Peer(
            self.book.current.manifest.trainer,
            clock=_now,
            random_bytes=nacl.utils.random,
            transport=None,
        )
        self.trainer = CrowdTrainer(lambda: self.peer)

    async def open(self) -> str:
        """Open it, for a week or until all have contributed; return its id."""
        analyst = load_party(self.directory / "parties" / "analyst")
        asked = CrowdJobRequest(
            manifest=self.book.current.digest,
            nonce=nacl.utils.random(16).hex(),
            analyst=analyst.name,
            task=self.task,
            contributions=self.study.contributions,
            contributions_per_client=1,
            contributions_per_record=1,
            session_seconds=SESSION_SECONDS,
            closes_at=(_now() + timedelta(days=7)).replace(microsecond=0),
        )
        encoded = sign(asked, analyst.name, analyst.signing_key).encode()
        answer = await self.peer.post("/v1/crowds", encoded, "application/json")
        if answer.is_refusal:
            raise RuntimeError(f"the trainer refuses the job: {answer.reason}")
        return asked.digest

    def load(self, job: str, *, together: int, concurrency: int) -> CrowdLoad:
        """Return the phones, with records as the plan assumes them."""
        key = read_holder_key(self.directory / "clients" / SITE / "holder.key")
        generator = np.random.default_rng(1)
        features, targets = outcomes(self.study, (len(self.book.current.roster),), generator)
        return CrowdLoad(
            book=self.book,
            job=job,
            key=key,
            records=np.column_stack([features, targets]),
            monotonic=time.monotonic,
            together=together,
            concurrency=concurrency,
        )

    async def closing(self, job: str) -> Signed[CrowdClosing]:
        """Return the closing, once it is there."""
        crowd = await self.trainer.crowd(job, self.book.current)
        while True:
            closing = await self.trainer.closing(crowd, wait_seconds=_WAIT_SECONDS)
            if closing is not None:
                return closing


async def measure(
    directory: Path, trainer: Process, *, contributions: int, together: int, concurrency: int
) -> dict[str, Any]:
    """Return what was measured, by what it is of; the trainer runs."""
    # a phone whose request is open holds a draw, or is about to
    work = _Job(directory, trainer, study(contributions, concurrency * together))
    try:
        job = await work.open()
        load = work.load(job, together=together, concurrency=concurrency)
        data = Path(trainer.environment["SHOAL_DATA"])
        disk, trainer_cpu, own_cpu = disk_bytes(data), cpu_seconds([trainer]), time.process_time()
        figures = await load.run()
        trainer_cpu = cpu_seconds([trainer]) - trainer_cpu
        own_cpu = time.process_time() - own_cpu
        closing = (await work.closing(job)).body
        used = {
            "trainer, CPU ms": trainer_cpu * 1e3 / contributions,
            "trainer, disk bytes": (disk_bytes(data) - disk) / contributions,
            "phone, CPU ms": own_cpu * 1e3 / contributions,
            "phone, bytes sent with HTTP heads": sum(
                each.sent_bytes for kind, each in figures.requests.items() if kind != "other"
            )
            / contributions,
            "phone, bytes received": sum(
                count for kind, count in figures.received_bytes.items() if kind != "other"
            )
            / contributions,
        }
        return {
            "contributions acknowledged": figures.acknowledged,
            "seconds": figures.seconds,
            "contributions a second": figures.contributions_per_second,
            "refused": figures.refused,
            "errors": figures.errors,
            "ms until answered": {
                kind: f"{each.p50_milliseconds:.1f}, {each.p95_milliseconds:.1f}, "
                f"{each.p99_milliseconds:.1f} (50, 95, 99 %)"
                for kind, each in sorted(figures.requests.items())
                if kind != "other"
            },
            "of each contribution": used,
            "trainer, peak MiB": peak_memory_mib(trainer.pid),
            "checked": await _checked(work, job, closing, figures),
            "error of the averaged coefficients": _learned(work, closing),
        }
    finally:
        await work.peer.close()


async def _checked(
    work: _Job, job: str, closing: CrowdClosing, figures: CrowdFigures
) -> dict[str, Any]:
    """Compare what was acknowledged with the chains, and all draws with the seed."""
    crowd = await work.trainer.crowd(job, work.book.current)
    begun = time.monotonic()
    account = await account_of(work.trainer, crowd, closing, figures, now=system_clock())
    return {
        "links in all chains": account.linked,
        "acknowledged and lost": account.lost,
        "counted twice": account.counted_twice,
        "draws": len(figures.draws),
        "draws that are not as the seed says": account.misdrawn,
        "draws of what no instance was": account.forged,
        "replacements of an instance, least and most": f"{account.fewest:,} to {account.most:,}",
        "seconds to fetch and verify all chains": time.monotonic() - begun,
    }


def _learned(work: _Job, closing: CrowdClosing) -> dict[str, float]:
    model = CrowdModel.closed(work.task, closing)
    truth = assume(work.study).truth
    return {
        "root mean square, this run": float(np.sqrt(np.mean((model.averaged - truth) ** 2))),
        "planned": work.prospect.error.total,
        "of zeros": work.study.effect,
    }


def _now() -> datetime:
    return datetime.now(UTC)


def run(*, contributions: int, together: int, concurrency: int) -> dict[str, Any]:
    """Make a federation of which only the trainer runs, and measure."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        services = quickstart(
            directory,
            clients={SITE: contributions},
            nodes=2,
            options=["--maximum-local-epsilon", str(EPSILON)],
        )
        trainer = next(each for each in services if each.name == "trainer")
        with Federation() as federation:
            federation.start(trainer)
            return asyncio.run(
                measure(
                    directory,
                    federation["trainer"],
                    contributions=contributions,
                    together=together,
                    concurrency=concurrency,
                )
            )


def main() -> None:
    """Measure and print."""
    asked = options(__doc__, contributions=100_000, together=1, concurrency=64)
    show(run(**vars(asked)))


if __name__ == "__main__":
    main()
