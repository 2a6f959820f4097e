"""Cautions on how much of a regression's posterior comes from prior, bounds and noise.

The learner measures them. Thresholds were set by simulation: docs/mathematics.md, section 4.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import FloatMatrix, FloatVector, RegressionPosterior
from shoal_protocol.posteriors.intervals import normal_intervals
from shoal_protocol.posteriors.likelihoods import normal_log_density
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Finite, PositiveSize, Size

PRIOR_DECIDES: Final = 0.25
"""Of a posterior variance, relative to the prior's: from here on it decides, or"""
PRIOR_PULLS: Final = 0.5
"""posterior standard deviations by which the prior pulls a mean."""
TOO_WIDE: Final = 0.25
"""Standard deviation of a column, relative to half its bounds' range: bounds look too wide."""
CROWDED: Final = 0.55
"""The same of a target: from here on bounds may cut it, as they cut a tenth of a normal one."""
OFF_CENTRE: Final = 0.4
"""Distance of a column's mean from the middle of its bounds, relative to half their range."""
AT_A_BOUND: Final = (0.75, 0.98)
"""The same: from here on values may be at a bound, or surely are if they are not at both."""
SHRUNK: Final = 0.6
"""Mean squared factor that a ball left of rows; less pulls values, and so does more than"""
MISMEASURED: Final = 1.25
"""times the mean square of a column that an earlier round measured, and so cut it by."""
DROWNED: Final = 5.0
"""What is a feature's own, in standard deviations of the noise in it: fewer drown it."""


class Grounds(Model):
    """Measurements of a linear regression's sums that bear on its prior, bounds and noise.

    Of each number of the posterior `prior_mean` and `prior_sd`, in the units of the data. Of each
    column, the target last, `spreads` (standard deviation) and `middles` (mean less the middle of
    the bounds), over half the bounds' range, as the noisy sums have them, None where they do not
    tell. Of each feature `signals`: its scatter that the other features do not explain, in standard
    deviations of the noise in it. `kept` is the mean squared factor by which a ball shrank rows,
    and `mismeasured` how many times more than an earlier round measured a column's mean square was,
    at most: as much as noise lets that be seen.
    """

    prior_mean: tuple[Finite, ...]
    prior_sd: tuple[Size, ...]
    spreads: tuple[Size | None, ...]
    middles: tuple[Finite | None, ...]
    signals: tuple[Size, ...]
    kept: Size
    mismeasured: PositiveSize

    @model_validator(mode="after")
    def _of_one_regression(self) -> Self:
        numbers, columns = len(self.prior_mean), len(self.spreads)
        found = (len(self.prior_sd), len(self.middles), len(self.signals), columns)
        if found != (numbers, columns, columns - 1, numbers):
            raise ValueError("grounds must have one number for each coefficient and column")
        return self

    def cautions(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return what speaks against the bounds and the noise; `columns` in order."""
        at_bound = [
            name
            for name, spread, middle in zip(columns, self.spreads, self.middles, strict=True)
            if spread is not None and middle is not None and _is_at_bound(spread, abs(middle))
        ]
        wide = [
            name
            for name, spread in zip(columns, self.spreads, strict=True)
            if spread is not None and spread <= TOO_WIDE and name not in at_bound
        ]
        off = [
            name
            for name, middle in zip(columns, self.middles, strict=True)
            if middle is not None and abs(middle) >= OFF_CENTRE
        ]
        drowned = [
            name for name, signal in zip(columns, self.signals, strict=False) if signal < DROWNED
        ]
        target = self.spreads[-1]
        crowded = [columns[-1]] if target is not None and target >= CROWDED else []
        said = {
            "NOISE IS NEARLY AS LARGE as what tells of {}: values are pulled and intervals need "
            "not hold; ask more clients, or at a larger epsilon": drowned,
            "BOUNDS LOOK TOO WIDE for {}: noise and prior are in their units, and intervals may "
            "fail; ask again with narrower ones, from general knowledge, in which all values "
            "still lie": wide,
            "VALUES OF {} ARE AT OR BEYOND A BOUND, and cut to it, or the bounds are far too wide: "
            "see whether the unit is right, and ask again with bounds in which all values lie, and "
            "not much wider": at_bound,
            "VALUES OF {} CROWD AT THEIR BOUNDS: if these cut values, slopes are pulled towards 0, "
            "in no interval; ask again with wider ones unless none can lie outside": crowded,
            "{} FAR OFF THE MIDDLE of the bounds: slope and constant can hardly be told apart, and "
            'intervals may fail; ask again with other bounds or centring "private"': off,
        }
        found = [text.format(", ".join(names)) for text, names in said.items() if names]
        if self.kept < SHRUNK or self.mismeasured > MISMEASURED:
            found.append(
                "ROWS WERE CUT OR SHRUNK MUCH, which pulls values, in no interval: take method "
                "norm_ball, or plain with a larger radius"
            )
        return tuple(found)


def _is_at_bound(spread: float, away: float) -> bool:
    """Tell whether a column looks cut to one bound: values at both, as a flag's, spread more."""
    near, there = AT_A_BOUND
    return away >= there or (away >= near and spread <= near * math.sqrt(1.0 - away**2))


class Prior(NamedTuple):
    """Means and standard deviations of independent normal priors of a posterior's numbers, (k,)."""

    mean: FloatVector
    sd: FloatVector

    def shares(self, sd: FloatVector) -> FloatVector:
        """Return each posterior variance, of `sd`, over the prior's, at most 1, shape (k,).

        A number that the prior fixes is all prior.
        """
        ratios = np.divide(sd, self.sd, out=np.ones_like(self.sd), where=self.sd > 0.0)
        shares: FloatVector = np.minimum(ratios, 1.0) ** 2
        return shares

    def caution(self, names: Sequence[str], mean: FloatVector, sd: FloatVector) -> str | None:
        """Return which numbers, posterior `mean` and `sd`, the prior decides; None if none."""
        away = np.zeros_like(self.sd)
        np.divide(np.abs(mean - self.mean), self.sd, out=away, where=self.sd > 0.0)
        shares = self.shares(sd)
        decides = (shares >= PRIOR_DECIDES) | (away * np.sqrt(shares) >= PRIOR_PULLS)
        return prior_caution(
            [
                name
                for name, it_does, free in zip(names, decides, self.sd > 0.0, strict=True)
                if it_does and free
            ]
        )


def prior_caution(names: Sequence[str]) -> str | None:
    """Return the caution that the prior decides `names`, None of no names."""
    if not names:
        return None
    return (
        f"THE PRIOR DECIDES {', '.join(names)}, or pulls values by half a posterior sd or more: "
        "what was believed before, and not the data, above all of strong effects; take a larger "
        "prior_sd where effects may be stronger, or more clients, or a larger epsilon"
    )


class Grounded(RegressionPosterior):
    """A linear regression's posterior, with `grounds` if the learner measured them."""

    # Left out where there are none, never null.
    grounds: Grounds | None = Field(default=None, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _grounds_are_of_its_numbers(self) -> Self:
        if self.grounds is not None and len(self.grounds.prior_mean) != len(self.names):
            raise ValueError("grounds must be of the posterior's numbers")
        return self

    @property
    @abstractmethod
    def _record_sd(self) -> float:
        """The standard deviation of a new record around its prediction."""

    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of the target, shapes (n,), for `rows`, shape (n, m).

        The standard deviation is a new record's: coefficients and residual together.

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        design = self._design(self._checked_rows(rows))
        spread = np.einsum("ni,ij,nj->n", design, self.covariance_matrix, design)
        deviation = np.sqrt(np.maximum(spread, 0.0) + self._record_sd**2)
        return design @ self.mean, deviation

    def predict_interval(self, rows: FloatMatrix, level: float) -> FloatMatrix:
        """Return central intervals that hold about `level` of a new record's target, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        return normal_intervals(*self.predict(rows), level)

    def _design(self, rows: FloatMatrix) -> FloatMatrix:
        return super()._design(self._scaled(rows))

    def _log_densities(self, targets: FloatVector, predictors: FloatMatrix) -> FloatMatrix:
        return normal_log_density(targets, predictors, self._record_sd)

    def _scaled(self, rows: FloatMatrix) -> FloatMatrix:
        """Return rows in the units that the coefficients are of."""
        return rows

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        return (("Residual sd", f"{self._record_sd:.4g}"),)

    @property
    def prior(self) -> Prior | None:
        if self.grounds is None:
            return None
        return Prior(np.array(self.grounds.prior_mean), np.array(self.grounds.prior_sd))

    @property
    def caution(self) -> str | None:
        if self.grounds is None or self.prior is None:
            return None
        decided = self.prior.caution(self.names, self.mean, self.sd)
        said = (*self.grounds.cautions(self.columns), decided)
        return "; ".join(each for each in said if each is not None) or None

    def _attributes(self) -> Mapping[str, str | int | float]:
        return {**super()._attributes(), "target": self.target}
