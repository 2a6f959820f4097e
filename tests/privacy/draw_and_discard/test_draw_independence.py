"""Draws and replacements are uniform, and independent of each other and of nonces."""

import hashlib

import numpy as np
import pytest
from scipy import stats

from shoal_protocol.crowds.draws import drawn_instance, replaced_instance
from tests.world.examples import seed

SEED = seed("seed of a crowd that is watched")
FALSE_ALARM = 1e-6
"""Of each chi-square test here, on draws that are fixed: none of the honest ones sounds."""


def nonce(number: int) -> str:
    return hashlib.sha256(b"nonce %d" % number).hexdigest()


@pytest.mark.parametrize("instances", [2, 5, 64])
def test_draws_and_replacements_are_uniform_and_independent_of_each_other_and_of_nonces(
    instances: int,
) -> None:
    table = np.zeros((instances, instances))
    of_nonce = np.zeros((2, instances))
    for number in range(200 * instances):
        of = nonce(number)
        drawn, replaced = (
            choose(SEED, of, instances) for choose in (drawn_instance, replaced_instance)
        )
        table[drawn, replaced] += 1
        of_nonce[int(of, 16) % 2, drawn] += 1
    for counts in table.sum(axis=0), table.sum(axis=1), table.ravel():
        if counts.min() >= 1:
            assert stats.chisquare(counts).pvalue > FALSE_ALARM
    assert stats.chi2_contingency(of_nonce).pvalue > FALSE_ALARM
