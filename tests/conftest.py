"""What all tests share: the same examples in every run, and no verdict by the clock."""

import shutil

import pytest
from hypothesis import settings

settings.register_profile("the same every time", derandomize=True, deadline=None)
settings.load_profile("the same every time")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if shutil.which("docker") is None:
        for item in items:
            if item.get_closest_marker("docker"):
                item.add_marker(pytest.mark.skip(reason="there is no container engine here"))
