"""Jobs with delta = 0: discrete Laplace noise, counted in pure epsilon by everybody."""

import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.jobs.job_failures import JobRefused
from shoal_holder.noise import exact_noise
from shoal_protocol.privacy.accounting import compose
from tests.world.audit import audit
from tests.world.federation import PRIVACY, Federation
from tests.world.spending import costs_of
from tests.world.trust import HOLDER_POLICY, SITES, Trust, make_trust

CLIENTS = sum(SITES.values())
PURE = PRIVACY.model_copy(update={"delta": 0.0})


@pytest.fixture(scope="module")
def pure_trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    """A consortium that allows nothing but pure epsilon: 4, as every data holder does."""
    directory = tmp_path_factory.mktemp("pure")
    return make_trust(directory, delta=0.0, mechanisms=("discrete_laplace",))


@pytest.fixture
async def federation(pure_trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    policy = HOLDER_POLICY.model_copy(update={"delta": 0.0})
    holders = {site: {"policy": policy} for site in SITES}
    async with Federation(pure_trust, tmp_path, noise=exact_noise, holders=holders) as running:
        yield running


async def test_a_job_ends_with_a_posterior_at_a_pure_price(federation: Federation) -> None:
    report = await federation.learn(privacy=PURE)

    (result,) = (await audit(federation)).values()
    assert result is not None
    assert report.cohort_sizes == (CLIENTS,)
    assert (report.privacy.delta, report.privacy.epsilon) == (0.0, pytest.approx(2.0))
    assert report.privacy.epsilon <= 2.0
    assert len(report.posterior.mean) == 2  # the constant and the slope


async def test_both_mechanisms_share_a_cap_with_delta(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    both = make_trust(
        tmp_path_factory.mktemp("both"), mechanisms=("discrete_gaussian", "discrete_laplace")
    )
    policy = HOLDER_POLICY.model_copy(
        update={"mechanisms": ("discrete_gaussian", "discrete_laplace")}
    )
    holders = {site: {"policy": policy} for site in SITES}
    async with Federation(both, tmp_path, noise=exact_noise, holders=holders) as federation:
        for privacy in (PURE.model_copy(update={"epsilon": 0.3}), PRIVACY):
            await federation.learn(privacy=privacy)
        await audit(federation)
        spent = await costs_of(federation.holder("clinic-a"))
        for first, second in spent.values():
            assert first.epsilon == pytest.approx(0.3)
            assert second.epsilon == math.inf
        left = both.consortium.manifest.policy.cap.mu**2 - compose([first, second]).mu ** 2
        assert left > 0.0
        rest = PRIVACY.model_copy(update={"epsilon": 3.5})
        assert rest.cost.mu**2 > left
        with pytest.raises(JobRefused, match="budget-exceeded"):
            await federation.submit(privacy=rest)
