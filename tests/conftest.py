"""What all tests share: the same examples in every run, and no verdict by the clock."""

import os
import shutil

import pytest
from hypothesis import settings

pytest_plugins = ["tests.databases"]  # one server of PostgreSQL, not one for each module

settings.register_profile("the same every time", derandomize=True, deadline=None)
settings.load_profile("the same every time")


# Where workers share the tests, each of these groups is for one of them.
GROUPS = {
    "tests/containers/": "containers",
    "tests/end_to_end/": "real processes",
    # One worker compiles models, and holds the half gibibyte that this takes.
    "tests/learning/test_conditional_design.py": "compiled models",
    "tests/learning/test_coverage.py": "compiled models",
    "tests/learning/test_numpyro_learning.py": "compiled models",
    "tests/protocol/test_numpyro_models.py": "compiled models",
    "tests/federation/test_numpyro_job.py": "compiled models",
    "tests/hosting/test_installed_models.py": "compiled models",
}


def pytest_xdist_auto_num_workers() -> int:
    """Have one worker more than processors: two groups wait for clocks more than they compute."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)  # the groups are read by the plugin that shares out the tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for folder, group in GROUPS.items():
            if item.nodeid.startswith(folder):
                item.add_marker(pytest.mark.xdist_group(group))
    if shutil.which("docker") is None:
        for item in items:
            if item.get_closest_marker("docker"):
                item.add_marker(pytest.mark.skip(reason="there is no container engine here"))
