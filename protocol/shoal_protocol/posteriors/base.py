"""What every posterior can do besides its own mathematics: draws, and their export to ArviZ."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from shoal_protocol.posteriors.showing import Shown

if TYPE_CHECKING:
    from arviz import InferenceData

Finite = Annotated[float, Field(allow_inf_nan=False)]
FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]


class BasePosterior(Shown, BaseModel):
    """A posterior of the parameters `names`, from about `records` records: seen through noise.

    Sums of gradients do not tell how many: of these it is the most that clients may hold.

    `variable` is what ArviZ is to call the vector of all parameters, and `dimension` its axis.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    variable: ClassVar[str] = "parameters"
    dimension: ClassVar[str] = "parameter"

    names: Annotated[tuple[str, ...], Field(min_length=1)]
    records: Annotated[int, Field(ge=1)]

    @abstractmethod
    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` joint draws, shape (count, k): no privacy depends on them."""

    def _chains(self, count: int, generator: np.random.Generator | None) -> FloatMatrix:  # noqa: TID251
        """Return draws of all parameters for ArviZ, shape (chains, draws, k)."""
        if generator is None:
            raise ValueError(
                "this posterior is in closed form and has to be drawn from: pass a generator, "
                "such as numpy.random.default_rng(1)"
            )
        return self.sample(count, generator)[None]

    def _other_variables(self) -> Mapping[str, FloatMatrix]:
        """Return draws of what is not in `names`, shape (chains, draws) each, for ArviZ."""
        return {}

    def _facts(self) -> Mapping[str, str | int | float]:
        """Return what else is known of the posterior, for ArviZ's attributes."""
        return {"records": self.records}

    def to_arviz(
        self,
        generator: np.random.Generator | None = None,  # noqa: TID251
        *,
        count: int = 4000,
        attributes: Mapping[str, str | int | float] | None = None,
    ) -> "InferenceData":
        """Return ArviZ's InferenceData: the group `posterior`, with names as coordinates.

        Of a posterior in closed form one chain of `count` draws is drawn by `generator`; one that
        consists of draws gives those and needs neither. `attributes` are added to the group's: a
        report's own `to_arviz` adds the job and its price.

        Raises:
            ValueError: it is in closed form and there is no generator.
            ImportError: ArviZ is not installed; the message names the extra.
        """
        arviz = _arviz()
        data: InferenceData = arviz.from_dict(
            posterior={self.variable: self._chains(count, generator), **self._other_variables()},
            dims={self.variable: [self.dimension]},
            coords={self.dimension: list(self.names)},
            posterior_attrs={**self._facts(), **(attributes or {})},
        )
        return data


def _arviz() -> Any:
    try:
        import arviz
    except ModuleNotFoundError as error:
        raise ImportError("this export needs the extra: pip install 'shoal[analysis]'") from error
    return arviz
