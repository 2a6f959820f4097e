"""The models of whose likelihood clients take gradients, without noise or clipping."""

from typing import Annotated

from pydantic import Field

from shoal_protocol.queries.models.installed import InstalledModel
from shoal_protocol.queries.models.regressions import (
    LogisticRegressionModel,
    PoissonRegressionModel,
)

GradientModel = Annotated[
    LogisticRegressionModel | PoissonRegressionModel | InstalledModel,
    Field(discriminator="name"),
]
"""Every model that a gradient may be asked of."""

__all__ = ["GradientModel", "InstalledModel", "LogisticRegressionModel", "PoissonRegressionModel"]
