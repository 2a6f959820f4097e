"""The demonstration's data: 442 diabetes patients, one per client, and public bounds for them.

The records are scikit-learn's copy of the data of Efron, Hastie, Johnstone and Tibshirani (2004,
"Least angle regression", Annals of Statistics 32). The bounds come from general clinical knowledge
and from the published description, never from the records: bounds are not charged to the budget.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from shoal_protocol.tasks import ColumnBounds, LinearRegressionTask

FEATURES = (
    # Adults: legal age, to an age by which few patients begin follow-up.
    ColumnBounds(name="age", lower=18.0, upper=80.0),
    # Coded 1 and 2. The wider range keeps a two-valued column from using up the row's norm.
    ColumnBounds(name="sex", lower=0.0, upper=3.0),
    # Body mass index, kg/m^2: from severe thinness to class III obesity (WHO classes), rounded.
    ColumnBounds(name="bmi", lower=15.0, upper=45.0),
    # Mean arterial pressure, mmHg: 60 is the least that perfuses organs, 130 a hypertensive crisis.
    ColumnBounds(name="bp", lower=60.0, upper=130.0),
    # Total serum cholesterol, mg/dl: very low is below 120, high from 240 (NCEP ATP III).
    ColumnBounds(name="s1", lower=100.0, upper=300.0),
    # Low-density lipoproteins, mg/dl: optimal below 100, very high from 190 (NCEP ATP III).
    ColumnBounds(name="s2", lower=40.0, upper=240.0),
    # High-density lipoproteins, mg/dl: low below 40, protective from 60 (NCEP ATP III).
    ColumnBounds(name="s3", lower=20.0, upper=100.0),
    # Total cholesterol over HDL: ideal is below 3.5, high risk above 5, beyond 9 rare.
    ColumnBounds(name="s4", lower=1.0, upper=9.0),
    # Natural logarithm of triglycerides: 33 to 665 mg/dl; very high is from 500 (NCEP ATP III).
    ColumnBounds(name="s5", lower=3.5, upper=6.5),
    # Fasting glucose, mg/dl: hypoglycaemia is below 70, diabetes from 126 (ADA).
    ColumnBounds(name="s6", lower=60.0, upper=130.0),
)
# Disease progression after one year: the published description says whole numbers 25 to 346.
TARGET = ColumnBounds(name="progression", lower=0.0, upper=350.0)

EPSILON = 1.0
DELTA = 1e-5

TASK = LinearRegressionTask(features=FEATURES, target=TARGET, method="plain")

_HELD_OUT_EVERY = 13


@dataclass(frozen=True, kw_only=True)
class Diabetes:
    """Records with one column per name: the ten features in order, then the target."""

    names: tuple[str, ...]
    training: NDArray[np.float64]  # shape (408, 11)
    held_out: NDArray[np.float64]  # shape (34, 11)


def load() -> Diabetes:
    """Return the data, every 13th record held out; the split is the same every time."""
    data = load_diabetes(scaled=False)
    records = np.column_stack([data.data, data.target]).astype(np.float64)
    held_out = np.arange(len(records)) % _HELD_OUT_EVERY == 0
    return Diabetes(
        names=tuple(column.name for column in TASK.columns),
        training=records[~held_out],
        held_out=records[held_out],
    )
