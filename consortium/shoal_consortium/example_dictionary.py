"""The data dictionary that quickstarts carry: the columns of what `shoal job example` prints."""

from typing import Final

from shoal_protocol.trust.dictionary import Flag, Number, Variable

EXAMPLE_VARIABLES: Final[tuple[Variable, ...]] = (
    Number(name="age", meaning="age at the visit", unit="years", lower=18, upper=100),
    Number(
        name="body_mass_index",
        meaning="body mass over squared height, measured at the visit",
        unit="kg/m²",
        lower=10,
        upper=60,
    ),
    Number(
        name="systolic_pressure",
        meaning="systolic blood pressure, seated, second of two readings",
        unit="mmHg",
        lower=60,
        upper=220,
    ),
    Flag(name="smoker", meaning="smokes now"),
    Number(name="stage", meaning="stage of the disease, from 1 to 4", lower=1, upper=4),
    Number(name="visits", meaning="visits in the last year", lower=0, upper=20),
)
