"""Posteriors of variational inference: a normal in unconstrained space, in the data's units."""

import base64
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.convergence import MOST_CORRELATED, Convergence
from shoal_protocol.posteriors.priors import PRIOR_DECIDES, Prior, prior_caution
from shoal_protocol.wire.encoding import Base64
from shoal_protocol.wire.numbers import Positive, Real

_MEAN_FIELD: Final = (
    "a mean-field approximation of too few rounds to know of their noise: intervals are too "
    "narrow, and clipping or too few rounds pull the values themselves: simulate the job to see "
    "how far"
)
_BY_COORDINATE: Final = (
    "correlations are left out, as of all posteriors of so many numbers: intervals are too narrow "
    "where numbers are correlated"
)
_KNOWN: Final = "of privacy noise and batches"
_CLIPPED: Final = "what clipping does to the values is in no interval: simulate the job to see it"


def _is_none(value: object) -> bool:
    return value is None


class VariationalPosterior(BasePosterior):
    """A normal distribution of d unconstrained numbers: `location` and `scale`, shapes (d,).

    With `convergence` it knows of the privacy noise and of batches; what clipping does to the
    values no sum shows. `correlation` packs the lower Cholesky factor of the correlation matrix,
    row by row, as little-endian doubles; without it coordinates are independent. Without
    `convergence` it is a mean-field approximation, and TOO NARROW: `caution` says so. `prior_sd`,
    shape (d,), are standard deviations of the prior, taken as normal near the posterior. `records`
    is how many went into it at most: one for each client that joined, or as many as one may have.
    """

    location: Annotated[tuple[Real, ...], Field(min_length=1, max_length=10_000)]
    scale: tuple[Positive, ...]
    # Omitted when None, so older signed reports keep their digest.
    correlation: Base64 | None = Field(default=None, exclude_if=_is_none)
    convergence: Convergence | None = Field(default=None, exclude_if=_is_none)
    prior_sd: tuple[Positive, ...] | None = Field(default=None, exclude_if=_is_none)

    @model_validator(mode="after")
    def _one_scale_for_each(self) -> Self:
        if len(self.scale) != len(self.location):
            raise ValueError("location and scale must have the same length")
        if self.convergence is not None and len(self.convergence.slopes) != len(self.location):
            raise ValueError("convergence must have one number for each of the location")
        if self.prior_sd is not None and len(self.prior_sd) != len(self.location):
            raise ValueError("prior_sd must have one number for each of the location")
        if self.correlation is not None and self.convergence is None:
            raise ValueError("a posterior with correlations has a convergence")
        _unpacked(self.correlation, len(self.location))
        return self

    @property
    def inference(self) -> Literal["noise_aware", "noise_aware_by_coordinate", "mean_field"]:
        """What the intervals account for: noise and correlations, noise alone, or neither."""
        if self.convergence is None:
            return "mean_field"
        return "noise_aware_by_coordinate" if self.correlation is None else "noise_aware"

    @property
    def caution(self) -> str:
        if self.convergence is None:
            decided = self._prior_caution
            return _MEAN_FIELD if decided is None else f"{_MEAN_FIELD}; {decided}"
        by_coordinate = None if self.inference == "noise_aware" else _BY_COORDINATE
        said = (self.convergence.caution, self._prior_caution, by_coordinate, _CLIPPED)
        return "; ".join(each for each in said if each is not None)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        shares = self._prior_shares
        said = []
        if self.convergence is not None:
            said += [("Intervals know", _KNOWN), ("Path", str(self.convergence))]
        if shares is not None and self.prior is None:
            share = f"{shares.min():.0%} to {shares.max():.0%} of variances, near the posterior"
            said.append(("Prior's share", share))
        return tuple(said)

    @property
    def _prior_shares(self) -> FloatVector | None:
        """Shares of the prior in the unconstrained numbers, shape (d,)."""
        if self.prior_sd is None:
            return None
        known = Prior(np.zeros(len(self.prior_sd)), np.array(self.prior_sd))
        return known.shares(np.array(self.scale))

    @property
    def _prior_caution(self) -> str | None:
        if self.prior is not None:
            return self.prior.caution(self.names, self.mean, self.sd)
        shares = self._prior_shares
        if shares is None:
            return None
        decided = np.flatnonzero(shares >= PRIOR_DECIDES) + 1
        return prior_caution([f"unconstrained number {place}" for place in decided])

    @cached_property
    def _factor(self) -> FloatMatrix | None:
        return _unpacked(self.correlation, len(self.location))

    def root_of(self, rows: FloatMatrix) -> FloatMatrix:
        """Return rows A, shape (n, d), times a root of the covariance C: A C A' is its square."""
        scaled: FloatMatrix = rows * np.array(self.scale)
        return scaled if self._factor is None else scaled @ self._factor

    def unconstrained_from(self, standard: FloatMatrix) -> FloatMatrix:
        """Return the unconstrained numbers, shape (n, d), of standard normal ones."""
        turned = standard if self._factor is None else standard @ self._factor.T
        values: FloatMatrix = np.array(self.location) + np.array(self.scale) * turned
        return values

    def __repr__(self) -> str:
        numbers, kind = len(self.location), type(self).__name__
        return f"<{kind} of {numbers} numbers from {self.records} records: {self.caution}>"

    def __str__(self) -> str:
        return repr(self)

    def _attributes(self) -> Mapping[str, str | int | float]:
        path = {} if self.convergence is None else {"path": str(self.convergence)}
        return {
            **super()._attributes(),
            "inference": self.inference,
            **path,
        }


def packed(factor: FloatMatrix) -> str:
    """Return a lower triangular matrix's rows, up to the diagonal, as doubles in base64."""
    rows = factor[np.tril_indices(len(factor))] + 0.0  # no -0: one factor is one document
    return base64.b64encode(np.ascontiguousarray(rows, dtype="<f8").tobytes()).decode()


def _unpacked(correlation: str | None, size: int) -> FloatMatrix | None:
    if correlation is None:
        return None
    raw = base64.b64decode(correlation)
    if size > MOST_CORRELATED or len(raw) != 8 * (size * (size + 1) // 2):
        raise ValueError(f"correlations: d (d + 1)/2 doubles, of at most {MOST_CORRELATED} numbers")
    if np.any(np.signbit(values := np.frombuffer(raw, "<f8")) & (values == 0.0)):
        raise ValueError("a factor of correlations has no negative zeros")
    factor = np.zeros((size, size))
    factor[np.tril_indices(size)] = values
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(factor, axis=1)
    if not np.allclose(lengths, 1.0, rtol=0.0, atol=1e-9) or np.any(np.diagonal(factor) < 0.0):
        raise ValueError("rows of a factor of correlations have length 1, the last number >= 0")
    return factor
