"""The enumerations of which a run takes every so many cases are there."""

import pytest

from tests.sampling import EVERY
from tests.world.named_tests import exists


@pytest.mark.parametrize("name", EVERY)
def test_a_test_of_which_cases_are_left_out_exists(name: str) -> None:
    assert exists(name)
