"""The models of whose likelihood clients take gradients, without noise or clipping."""

from typing import Annotated

from pydantic import Field

from shoal_protocol.queries.models.installed import InstalledModel
from shoal_protocol.queries.models.regressions import LogisticRegressionModel

GradientModel = Annotated[
    LogisticRegressionModel | InstalledModel,
    Field(discriminator="name"),
]
"""Every model that a gradient may be asked of."""

__all__ = ["GradientModel", "InstalledModel", "LogisticRegressionModel"]
