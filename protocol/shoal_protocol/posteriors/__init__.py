"""What an analyst gets: posteriors in the units of the data; they know neither sums nor noise.

Every posterior has `names`, `mean`, `sd`, `interval`, `sample`, `predict`, `records`, `to_arviz`,
`summary` and `plot`.
"""

from typing import Annotated

from pydantic import Field

from shoal_protocol.posteriors.categorical import CategoricalPosterior
from shoal_protocol.posteriors.draws import DrawsPosterior, LinearRegressionDraws
from shoal_protocol.posteriors.linear_regression import LinearRegressionPosterior
from shoal_protocol.posteriors.normal import MultivariateNormalPosterior, NormalPosterior
from shoal_protocol.posteriors.numpyro_model import NumpyroPosterior
from shoal_protocol.posteriors.tabulated import (
    BernoulliPosterior,
    NormalMeanPosterior,
    PoissonPosterior,
)
from shoal_protocol.posteriors.variational import VariationalPosterior
from shoal_protocol.posteriors.variational_regressions import (
    LogisticRegressionPosterior,
    PoissonRegressionPosterior,
)

Posterior = Annotated[
    LinearRegressionPosterior
    | LinearRegressionDraws
    | BernoulliPosterior
    | CategoricalPosterior
    | PoissonPosterior
    | NormalMeanPosterior
    | NormalPosterior
    | MultivariateNormalPosterior
    | LogisticRegressionPosterior
    | PoissonRegressionPosterior
    | NumpyroPosterior,
    Field(discriminator="name"),
]
"""Every posterior that a job may end with."""

__all__ = [
    "BernoulliPosterior",
    "CategoricalPosterior",
    "DrawsPosterior",
    "LinearRegressionDraws",
    "LinearRegressionPosterior",
    "LogisticRegressionPosterior",
    "MultivariateNormalPosterior",
    "NormalMeanPosterior",
    "NormalPosterior",
    "NumpyroPosterior",
    "PoissonPosterior",
    "PoissonRegressionPosterior",
    "Posterior",
    "VariationalPosterior",
]
