"""What the libraries for analysts and data holders offer, and need: no server, no SQL toolkit."""

import subprocess
import sys

import pytest

NOT_NEEDED = (
    "fastapi httptools prometheus_client pyarrow sqlalchemy starlette structlog uvicorn uvloop"
)


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["shoal", "shoal_agent.data_holder"])
def test_everything_public_loads_without_the_extras(package: str) -> None:
    run(
        "import sys\n"
        f"for name in {NOT_NEEDED.split()!r}: sys.modules[name] = None\n"
        f"import {package} as package\n"
        "for name in getattr(package, '__all__', ()): getattr(package, name)"
    )


@pytest.mark.slow
def test_an_analyst_does_not_load_the_noise_sampler() -> None:
    run(
        "import sys\n"
        "from shoal import Analyst, SimulatedFederation, estimators\n"
        "estimators.LinearRegression\n"
        "assert 'shoal_holder.noise' not in sys.modules"
    )


@pytest.mark.slow
def test_estimators_load_neither_pictures_nor_what_they_are_like() -> None:
    run(
        "import sys\n"
        "import shoal.estimators, shoal.jobs.federation\n"
        "for name in ('sklearn', 'matplotlib', 'pandas', 'jax'):\n"
        "    assert name not in sys.modules, name"
    )
