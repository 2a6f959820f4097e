"""A report's correlations: read as they were written, and refused where they are none."""

import numpy as np
import pytest

from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import MalformedDocument
from shoal_studies.catalogue.variational.posterior import (
    MOST_CORRELATED,
    VariationalPosterior,
    packed,
)
from shoal_studies.posterior_report import PosteriorReport
from tests.protocol.correlations import NOT_CORRELATIONS, doubles
from tests.world.examples import CORRELATED_POSTERIOR, CORRELATED_REPORT, named
from tests.world.strategies import replaced

REPORT = named("trainer", CORRELATED_REPORT)
PLACE = ("body", "posterior")
NUMBERS = ("slopes", "distances", "noise_shares", "scatters", "signals")


@pytest.mark.parametrize("name", NOT_CORRELATIONS)
def test_a_report_whose_correlations_are_none_is_refused(name: str) -> None:
    correlation = doubles(NOT_CORRELATIONS[name])
    wire = replaced(REPORT.to_json(), (*PLACE, "correlation"), correlation)
    with pytest.raises(MalformedDocument):
        decode(canonical_json(wire), PosteriorReport)
    fields = CORRELATED_POSTERIOR.model_dump() | {"correlation": correlation}
    with pytest.raises(ValueError, match=r"correlations|finite"):
        VariationalPosterior.model_validate(fields)


def test_more_numbers_than_may_be_correlated_are_refused() -> None:
    size = MOST_CORRELATED + 1
    fields = CORRELATED_POSTERIOR.model_dump()
    names = tuple(f"x{place}" for place in range(size))
    fields |= {
        "names": names,
        "latents": [{"name": name} for name in names],
        "location": (0.0,) * size,
        "scale": (1.0,) * size,
        "convergence": {
            "rounds": 150,
            "may_clip": False,
            **dict.fromkeys(NUMBERS, (0.0,) * size),
        },
    }
    with pytest.raises(ValueError, match="of at most 64"):
        VariationalPosterior.model_validate(fields | {"correlation": packed(np.eye(size))})
