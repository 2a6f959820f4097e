"""The demonstration's data: 442 diabetes patients, one per client, and the question to ask them.

The records are scikit-learn's copy of the data of Efron, Hastie, Johnstone and Tibshirani (2004,
"Least angle regression", Annals of Statistics 32). The question is of clinical knowledge: do three
marks of the metabolic syndrome (overweight, high blood pressure, high triglycerides) go with a
faster progression of diabetes, at the same age? The bounds come from general clinical knowledge and
from the published description, never from the records: bounds are not charged to the budget.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.linear_regression import LinearRegressionTask


@dataclass(frozen=True)
class Feature:
    """A column with its public bounds, and a difference in it that means something to a reader."""

    bounds: ColumnBounds
    difference: str
    step: float
    """The difference in the column's unit."""


FEATURES: Final = (
    # Adults: legal age, to an age by which few patients begin follow-up.
    Feature(ColumnBounds(name="age", lower=18.0, upper=80.0), "ten years older", 10.0),
    # Body mass index, kg/m^2: from severe thinness to class III obesity (WHO classes), rounded.
    Feature(
        ColumnBounds(name="bmi", lower=15.0, upper=45.0), "body mass index 5 kg/m² higher", 5.0
    ),
    # Mean arterial pressure, mmHg: 60 is the least that perfuses organs, 130 a hypertensive crisis.
    Feature(
        ColumnBounds(name="bp", lower=60.0, upper=130.0), "blood pressure 10 mmHg higher", 10.0
    ),
    # Natural logarithm of triglycerides: 33 to 665 mg/dl; very high is from 500 (NCEP ATP III).
    Feature(
        ColumnBounds(name="s5", lower=3.5, upper=6.5), "twice the triglycerides", math.log(2.0)
    ),
)
# Disease progression after one year: the published description says whole numbers 25 to 346.
TARGET: Final = ColumnBounds(name="progression", lower=0.0, upper=350.0)

EPSILON: Final = 3.0
DELTA: Final = 1e-5

TASK: Final = LinearRegressionTask(
    features=tuple(feature.bounds for feature in FEATURES), target=TARGET, method="plain"
)

_HELD_OUT_EVERY: Final = 13


@dataclass(frozen=True, kw_only=True)
class Patients:
    """Records with one column per name: all ten features that were published, then the target."""

    names: tuple[str, ...]
    training: NDArray[np.float64]  # shape (408, 11)
    held_out: NDArray[np.float64]  # shape (34, 11)

    def asked_for(self, records: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the task's columns of `records`, shape (n, 5), the target last."""
        return records[:, [self.names.index(column.name) for column in TASK.columns]]


def load() -> Patients:
    """Return the data, every 13th record held out; the split is the same every time."""
    data = load_diabetes(scaled=False)
    records = np.column_stack([data.data, data.target]).astype(np.float64)
    held_out = np.arange(len(records)) % _HELD_OUT_EVERY == 0
    return Patients(
        names=(*data.feature_names, TARGET.name),
        training=records[~held_out],
        held_out=records[held_out],
    )
