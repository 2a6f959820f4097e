"""Posteriors that consist of joint draws, as a sampler made them; they know no sampler and no sums.

On the wire draws are little-endian doubles in base64, chain by chain, draw by draw.
"""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.diagnostics import effective_sample_size, split_r_hat
from shoal_protocol.posteriors.grounds import Grounded, Grounds
from shoal_protocol.wire.encoding import Base64

MOST_VALUES: Final = 1 << 16
"""Numbers in one posterior: half a mebibyte, so that a report passes wherever documents do."""
MOST_CHAINS: Final = 16
_FEWEST_DRAWS: Final = 4  # of a chain: what a split R-hat needs


class DrawsPosterior(BasePosterior):
    """Joint draws of the parameters `names`, from several chains of one sampler.

    A model's posterior adds its own `name`, `columns` and `predict`. `values` are the doubles of an
    array of shape (chains, draws, k). `divergences` is how many transitions of the sampler went
    wrong, of all after its warm-up.
    """

    chains: Annotated[int, Field(ge=2, le=MOST_CHAINS)]
    values: Base64
    divergences: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _draws_are_usable(self) -> Self:
        _decoded(self.values, self.chains, len(self.names))
        return self

    @classmethod
    def _thinned(cls, draws: FloatMatrix, **fields: Any) -> Self:
        """Return the posterior of `draws`, shape (chains, draws, k), thinned as need be."""
        kept = thinned(draws)
        return cls(chains=len(kept), values=encoded(kept), **fields)

    @property
    def draws(self) -> FloatMatrix:
        """All draws, shape (chains, draws, k), read-only."""
        return _decoded(self.values, self.chains, len(self.names))

    @property
    def _flat(self) -> FloatMatrix:
        return self.draws.reshape(-1, len(self.names))

    @property
    def mean(self) -> FloatVector:
        mean: FloatVector = self._flat.mean(axis=0)
        return mean

    @property
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the parameters, shape (k, k)."""
        return np.atleast_2d(np.cov(self._flat, rowvar=False))

    @property
    def sd(self) -> FloatVector:
        sd: FloatVector = self._flat.std(axis=0, ddof=1)
        return sd

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        limits: FloatMatrix = np.quantile(self._flat, [low, high], axis=0).T
        return limits

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` of the draws at random, with replacement, shape (count, k)."""
        chosen: FloatMatrix = self._flat[generator.integers(0, len(self._flat), count)]
        return chosen

    @property
    def r_hat(self) -> FloatVector:
        """Rank-normalised split R-hat of each parameter, shape (k,): 1 where the chains agree.

        Computed from the draws, not taken from whoever made them.
        """
        return np.array([split_r_hat(each) for each in np.moveaxis(self.draws, 2, 0)])

    @property
    def effective_sample_size(self) -> FloatVector:
        """How many independent draws tell as much of each parameter, shape (k,): of its centre or
        of its tails, the less. Computed from the draws."""
        return np.array([effective_sample_size(each) for each in np.moveaxis(self.draws, 2, 0)])

    def _chains(self, count: int, generator: np.random.Generator | None) -> FloatMatrix:  # noqa: TID251
        return self.draws

    def _attributes(self) -> Mapping[str, str | int | float]:
        return {**super()._attributes(), "divergences": self.divergences}


class LinearRegressionDraws(DrawsPosterior, Grounded):
    """Draws of a linear regression's coefficients and residual standard deviation, in data units.

    `names` are "intercept", then the features; the residual standard deviation's own draws are in
    `residual_values`, shape (chains, draws).
    """

    name: Literal["linear_regression_draws"] = "linear_regression_draws"
    residual_values: Base64

    @model_validator(mode="after")
    def _residuals_are_usable(self) -> Self:
        residuals = _decoded(self.residual_values, self.chains, 1)
        if residuals.shape[:2] != self.draws.shape[:2] or not np.all(residuals > 0.0):
            raise ValueError("every draw needs one residual standard deviation, above 0")
        return self

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        target: str,
        draws: FloatMatrix,
        residual_sd: FloatMatrix,
        *,
        divergences: int,
        records: int,
        grounds: Grounds | None = None,
    ) -> Self:
        """Return the posterior of `draws`, shape (chains, draws, k), and as many `residual_sd`.

        Of more than `MOST_VALUES` numbers every second, third, ... draw is kept.
        """
        kept = thinned(np.concatenate([draws, residual_sd[:, :, None]], axis=2))
        return cls(
            names=names,
            target=target,
            records=records,
            chains=len(kept),
            values=encoded(kept[:, :, :-1]),
            residual_values=encoded(kept[:, :, -1]),
            grounds=grounds,
            divergences=divergences,
        )

    @property
    def residual_sd_draws(self) -> FloatMatrix:
        """Draws of the residual standard deviation, shape (chains, draws)."""
        return _decoded(self.residual_values, self.chains, 1)[:, :, 0]

    @property
    def residual_sd(self) -> float:
        """Root mean square of the residual standard deviation's draws: what a prediction adds."""
        return float(np.sqrt(np.mean(self.residual_sd_draws**2)))

    @property
    def _record_sd(self) -> float:
        return self.residual_sd

    def _other_variables(self) -> Mapping[str, FloatMatrix]:
        return {"residual_sd": self.residual_sd_draws}


def thinned(draws: FloatMatrix) -> FloatMatrix:
    """Return every s-th draw of each chain, s the least with at most `MOST_VALUES` numbers left.

    `draws` has shape (chains, draws, k).
    """
    chains, count, size = draws.shape
    most = max(MOST_VALUES // (chains * size), 1)
    step = -(-count // most)
    return draws[:, step - 1 :: step]


def encoded(draws: NDArray[np.float64]) -> str:
    """Return an array's numbers as little-endian doubles in base64, the last axis fastest."""
    return base64.b64encode(np.ascontiguousarray(draws, dtype="<f8").tobytes()).decode()


def _decoded(values: str, chains: int, size: int) -> FloatMatrix:
    raw = base64.b64decode(values)
    if len(raw) > 8 * MOST_VALUES:
        raise ValueError(f"a posterior holds at most {MOST_VALUES} numbers")
    if not raw or len(raw) % (8 * chains * size):
        raise ValueError("values must be doubles of an array of shape (chains, draws, names)")
    draws: FloatMatrix = np.frombuffer(raw, "<f8").reshape(chains, -1, size)
    if draws.shape[1] < _FEWEST_DRAWS or not np.all(np.isfinite(draws)):
        raise ValueError(f"a chain needs {_FEWEST_DRAWS} draws or more, all of them finite")
    return draws
