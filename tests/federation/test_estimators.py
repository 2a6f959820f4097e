"""Estimators fitted over the simulated services, from a thread of their own as in a script."""

import asyncio
from typing import Any

import numpy as np
import pytest

from shoal.estimators import LinearRegressionInBounds
from shoal.jobs.federation import Federation
from shoal.jobs.job_failures import OutOfBudget
from shoal.jobs.job_settings import JobSettings
from shoal_protocol.certificates.checks import verify_certificate
from tests.world.federation import GRACE_SECONDS, JOIN_SECONDS, PRIVACY, ROUND_SECONDS
from tests.world.federation import Federation as Simulated
from tests.world.trust import SITES, TASK, Trust

CLIENTS = sum(SITES.values())


def real(simulated: Simulated, **changes: Any) -> Federation:
    arguments: dict[str, Any] = {
        **PRIVACY.model_dump(),
        "minimum_population": 10,
        "maximum_population": CLIENTS,
        "join_seconds": JOIN_SECONDS,
        "round_seconds": ROUND_SECONDS,
        "grace_seconds": GRACE_SECONDS,
    }
    return Federation(
        simulated.open_analyst(), JobSettings(**(arguments | changes)), show_progress=False
    )


def regression() -> LinearRegressionInBounds:
    return LinearRegressionInBounds(
        **{name: getattr(TASK, name) for name in type(TASK).model_fields if name != "name"}
    )


async def test_an_estimator_learns_what_a_job_submitted_by_hand_does(
    trust: Trust, federation: Simulated
) -> None:
    there = real(federation)
    model = await federation.after(asyncio.to_thread(regression().fit, there))

    assert model.report_ is not None
    assert model.report_.cohort_sizes == (CLIENTS,)
    assert model.report_ == await federation.report(model.report_.job)
    ages = np.array([[40.0], [60.0]])
    np.testing.assert_array_equal(model.predict(ages), model.posterior_.predict(ages)[0])
    certificate = await federation.after(asyncio.to_thread(model.certificate))
    assert certificate is not None
    verified = verify_certificate(certificate, trust.consortium.signed_manifest.encode())
    assert verified.certificate.job == model.report_.job


async def test_fits_that_clients_cannot_pay_for_are_refused(federation: Simulated) -> None:
    there = real(federation, epsilon=4.0)
    await federation.after(asyncio.to_thread(regression().fit, there))

    with pytest.raises(OutOfBudget, match="0 clients have budget left"):
        await federation.after(asyncio.to_thread(regression().fit, there))
