"""What an analyst may ask to be learned: public parameters only, no data and no algorithm.

Bounds must come from general knowledge of the columns, never from the data: nothing here is
charged to the privacy budget. Values outside the bounds are cut to them by the client.
"""

from typing import Annotated, Literal

from pydantic import Field

from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.families import (
    BernoulliTask,
    CategoricalTask,
    FamilyTask,
    MultivariateNormalTask,
    NormalMeanTask,
    NormalTask,
    PoissonTask,
)
from shoal_protocol.studies.linear_regression import (
    Centring,
    LinearRegressionTask,
    RegressionMethod,
)
from shoal_protocol.studies.variational import (
    LogisticRegressionTask,
    NumpyroTask,
    PoissonRegressionTask,
    VariationalTask,
)

Task = Annotated[LinearRegressionTask | FamilyTask | VariationalTask, Field(discriminator="name")]
"""Every task that a job may name."""

TaskName = Literal[
    "linear_regression",
    "bernoulli",
    "categorical",
    "poisson",
    "normal_mean",
    "normal",
    "multivariate_normal",
    "logistic_regression",
    "poisson_regression",
    "numpyro_model",
]
"""The names of all tasks, as data holders' policies list them."""


__all__ = [
    "BernoulliTask",
    "CategoricalTask",
    "Centring",
    "ColumnBounds",
    "FamilyTask",
    "LinearRegressionTask",
    "LogisticRegressionTask",
    "MultivariateNormalTask",
    "NormalMeanTask",
    "NormalTask",
    "NumpyroTask",
    "PoissonRegressionTask",
    "PoissonTask",
    "RegressionMethod",
    "Task",
    "TaskName",
    "VariationalTask",
]
