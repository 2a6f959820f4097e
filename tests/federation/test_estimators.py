"""Estimators fitted over the simulated services, from a thread of their own as in a script."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest

from shoal.estimators import LinearRegressionInBounds
from shoal.jobs.analyst import Analyst
from shoal.jobs.federation import Federation
from shoal.jobs.job_failures import OutOfBudget
from shoal.jobs.job_settings import JobSettings
from shoal_hosting.party import load_party
from shoal_protocol.certificates.checks import verify_certificate
from tests.world.chance import fixed_bytes
from tests.world.federation import GRACE_SECONDS, JOIN_SECONDS, PRIVACY, ROUND_SECONDS
from tests.world.federation import Federation as Simulated
from tests.world.lives import Life, quiet
from tests.world.trust import SITES, TASK, Trust

T = TypeVar("T")
CLIENTS = sum(SITES.values())


class Bridge(httpx.AsyncBaseTransport):
    """Carries what another thread's loop sends over the simulation's wire."""

    def __init__(self, simulated: Simulated) -> None:
        self._there = simulated.wire.of(Life("analyst"))
        self._loop = asyncio.get_running_loop()
        self.waiting = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(self._carry(request), self._loop)
        )

    async def _carry(self, request: httpx.Request) -> httpx.Response:
        self.waiting += 1
        response = await self._there.handle_async_request(request)
        content = await response.aread()
        self.waiting -= 1
        return httpx.Response(response.status_code, headers=response.headers, content=content)


def real(simulated: Simulated, bridge: Bridge, **changes: Any) -> Federation:
    arguments: dict[str, Any] = {
        **PRIVACY.model_dump(),
        "minimum_population": 10,
        "maximum_population": CLIENTS,
        "join_seconds": JOIN_SECONDS,
        "round_seconds": ROUND_SECONDS,
        "grace_seconds": GRACE_SECONDS,
    }
    analyst = Analyst(
        name="analyst",
        key=load_party(simulated.trust.directory / "parties" / "analyst").signing_key,
        book=simulated.analyst_book,
        clock=simulated.clock.of("analyst"),
        random_bytes=fixed_bytes("an analyst in a thread"),
        transport=bridge,
    )
    return Federation(analyst, JobSettings(**(arguments | changes)), show_progress=False)


async def meanwhile(simulated: Simulated, bridge: Bridge, work: Callable[[], T]) -> T:
    """Do `work` in a thread and let the parties do theirs until it is done."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(work)
        while not done.done():
            await quiet()
            if bridge.waiting:  # for an answer; else time stands still while the thread thinks
                await simulated.step()
                simulated.clock.move(0.5)
        return done.result()


def regression() -> LinearRegressionInBounds:
    return LinearRegressionInBounds(
        **{name: getattr(TASK, name) for name in type(TASK).model_fields if name != "name"}
    )


async def test_an_estimator_learns_what_a_job_submitted_by_hand_does(
    trust: Trust, federation: Simulated
) -> None:
    bridge = Bridge(federation)
    there = real(federation, bridge)
    model = await meanwhile(federation, bridge, lambda: regression().fit(there))

    assert model.report_ is not None
    assert model.report_.cohort_sizes == (CLIENTS,)
    assert model.report_ == await federation.report(model.report_.job)
    ages = np.array([[40.0], [60.0]])
    np.testing.assert_array_equal(model.predict(ages), model.posterior_.predict(ages)[0])
    certificate = await meanwhile(federation, bridge, model.certificate)
    assert certificate is not None
    verified = verify_certificate(certificate, trust.consortium.signed_manifest.encode())
    assert verified.certificate.job == model.report_.job


async def test_fits_that_clients_cannot_pay_for_are_refused(federation: Simulated) -> None:
    bridge = Bridge(federation)
    there = real(federation, bridge, epsilon=4.0)
    await meanwhile(federation, bridge, lambda: regression().fit(there))

    with pytest.raises(OutOfBudget, match="0 clients have budget left"):
        await meanwhile(federation, bridge, lambda: regression().fit(there))
