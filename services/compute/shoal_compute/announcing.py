"""Takes rounds that the trainer announces, or refuses them; knows no share and no other node."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import datetime
from typing import Final

from shoal_compute import store
from shoal_compute.budget import Budget
from shoal_compute.metrics import Metrics
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.store import Charge
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.storage import StorageThread
from shoal_protocol.documents import Signed, decode
from shoal_protocol.errors import NotReady, UnknownRound
from shoal_protocol.phases import Phase
from shoal_protocol.rounds import RoundSpec, check_spec

MOST_LIVE_ROUNDS: Final = 256  # each is in memory until it has ended


class Announcements:
    """Judges round specs by the manifest in force and by what each client was charged before."""

    def __init__(
        self,
        rounds: RoundBook,
        storage: StorageThread,
        book: ManifestBook,
        clock: Callable[[], datetime],
        executor: Executor,
        metrics: Metrics,
    ) -> None:
        self._rounds = rounds
        self._storage = storage
        self._book = book
        self._clock = clock
        self._executor = executor
        self._metrics = metrics
        self._budget = Budget(storage.run_here(store.all_charges))
        self._in_doubt: Signed[RoundSpec] | None = None  # charged; nobody knows if it is on file
        self._one_at_a_time = asyncio.Lock()  # a charge is counted before the next is checked

    async def announce(self, encoded: bytes) -> tuple[Round, bool]:
        """Return the round of a signed spec, and whether it is new here; it is durable then.

        Raises:
            MalformedDocument, UnsupportedVersion, BadSignature, UnknownSigner, WrongSigner
            WrongManifest: bound to another manifest version than the one in force.
            RefusedSpec: it contradicts itself, the manifest or its policy.
            BudgetExceeded: it would cost a client more than the policy's cap.
            NotReady: too many rounds are under way here.
            StorageUnavailable
        """
        loop = asyncio.get_running_loop()
        signed = await loop.run_in_executor(self._executor, decode, encoded, RoundSpec)
        async with self._one_at_a_time:
            await self._settle_doubt()
            try:
                return await self._rounds.find(signed.digest), False
            except UnknownRound:
                return await self._take(signed), True

    async def _take(self, signed: Signed[RoundSpec]) -> Round:
        if len(self._rounds.live) >= MOST_LIVE_ROUNDS:
            raise NotReady("too many rounds are under way")
        loop = asyncio.get_running_loop()
        charge, maximum_mu = await loop.run_in_executor(self._executor, self._judge, signed)
        self._budget.check(charge, maximum_mu=maximum_mu)
        self._budget.add(charge)
        self._in_doubt = signed  # a commit that seems to fail may have reached the disk
        await self._storage.run(store.add_round, signed, charge)
        self._in_doubt = None
        self._metrics.moved(None, Phase.ANNOUNCED)
        return await self._rounds.find(signed.digest)

    async def _settle_doubt(self) -> None:
        """Find out whether the round whose storing was broken off is on file, or else uncharge it.

        Until that is known its charge counts, so that the budget never counts too little.
        """
        if self._in_doubt is None:
            return
        if await self._storage.run(store.is_on_file, self._in_doubt):
            self._metrics.moved(None, Phase.ANNOUNCED)
        else:
            self._budget.give_back(charge_of(self._in_doubt.body))
        self._in_doubt = None

    def _judge(self, signed: Signed[RoundSpec]) -> tuple[Charge, float]:
        consortium = self._book.in_force(signed.body.manifest)
        consortium.verify(signed)
        check_spec(signed.body, consortium, now=self._clock())
        return charge_of(signed.body), consortium.manifest.policy.maximum_mu

    def give_back(self, known: Round) -> None:
        """Count a round no more that was abandoned before it held a share."""
        self._budget.give_back(charge_of(known.spec.body))


def charge_of(spec: RoundSpec) -> Charge:
    """Return what a round charges each client of its population."""
    return Charge(spec.mu**2, spec.clients())
