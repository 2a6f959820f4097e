"""A report of more numbers than may be correlated is refused."""

import numpy as np
import pytest

from shoal_studies.catalogue.variational.posterior import (
    MOST_CORRELATED,
    VariationalPosterior,
    packed,
)
from tests.world.examples import CORRELATED_POSTERIOR

NUMBERS = ("slopes", "distances", "noise_shares", "scatters", "signals")


def test_more_numbers_than_may_be_correlated_are_refused() -> None:
    size = MOST_CORRELATED + 1
    fields = CORRELATED_POSTERIOR.model_dump()
    names = tuple(f"x{place}" for place in range(size))
    fields |= {
        "names": names,
        "latents": [{"name": name} for name in names],
        "location": (0.0,) * size,
        "scale": (1.0,) * size,
        "prior_sd": (1.0,) * size,
        "convergence": {
            "rounds": 150,
            "may_clip": False,
            **dict.fromkeys(NUMBERS, (0.0,) * size),
        },
    }
    with pytest.raises(ValueError, match="of at most 64"):
        VariationalPosterior.model_validate(fields | {"correlation": packed(np.eye(size))})
