"""Jobs with delta = 0: discrete Laplace noise, counted in pure epsilon by everybody."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal_holder.noise import exact_noise
from tests.world.audit import audit
from tests.world.federation import PRIVACY, Federation
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
