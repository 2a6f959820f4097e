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
    Flag(name="sex", meaning="1 if female"),
    Flag(name="treatment", meaning="1 if treated, 0 in the control group"),
    Number(name="weeks", meaning="weeks until death or the last visit", lower=0, upper=120),
    Flag(name="died", meaning="1 if the patient died, 0 if the time is that of the last visit"),
    Number(name="site", meaning="number of the hospital, from 1 to 4", lower=1, upper=4),
    Number(name="income", meaning="yearly income of the household", lower=0, upper=1e9),
)
