"""What `import shoal_client` offers, and what it needs installed: no server, no SQL toolkit."""

import subprocess
import sys
from typing import get_args

import shoal_client
from shoal_protocol import tasks

NOT_NEEDED = (
    "fastapi httptools prometheus_client pyarrow sqlalchemy starlette structlog uvicorn uvloop"
)


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def test_everything_public_loads_without_the_extras() -> None:
    run(
        "import sys\n"
        f"for name in {NOT_NEEDED.split()!r}: sys.modules[name] = None\n"
        "import shoal_client\n"
        "for name in shoal_client.__all__: getattr(shoal_client, name)"
    )


def test_an_analyst_does_not_load_the_noise_library() -> None:
    run(
        "import sys\n"
        "from shoal_client import Analyst, LinearRegressionTask\n"
        "from shoal_client.estimators import LinearRegression\n"
        "assert 'opendp' not in sys.modules"
    )


def test_estimators_load_neither_pictures_nor_what_they_are_like() -> None:
    run(
        "import sys\n"
        "import shoal_client.estimators, shoal_client.federation\n"
        "for name in ('sklearn', 'matplotlib', 'scipy', 'pandas', 'jax', 'arviz'):\n"
        "    assert name not in sys.modules, name"
    )


def test_every_task_that_an_analyst_may_name_is_offered() -> None:
    [union, _] = get_args(tasks.Task)
    families = get_args(union)
    assert {each.__name__ for each in families} <= set(shoal_client.__all__)
    assert len(families) == len(get_args(tasks.TaskName))


def test_a_name_that_is_not_offered_is_an_attribute_error() -> None:
    assert not hasattr(shoal_client, "no_such_name")
