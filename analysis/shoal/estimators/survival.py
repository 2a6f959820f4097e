"""The estimator of hazard ratios."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from shoal.estimators.columns import FloatVector
from shoal.estimators.predicting import ReadsRows
from shoal.estimators.regressions import Judged
from shoal_protocol.posteriors.base import LEVEL
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.piecewise_exponential import (
    PiecewiseExponentialPosterior,
    PiecewiseExponentialTask,
)
from shoal_protocol.studies.piecewise_exponential.posterior import SurvivalCurves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HAS_TIME: Final = re.compile(r"\s*(\w+|`[^`]+`)\s*~")
_SURVIVAL: Final = re.compile(r"\s*survival\(([^,()]+),([^,()]+)\)\s*~")


class PiecewiseExponentialRegression(ReadsRows, Judged[PiecewiseExponentialPosterior]):
    """Hazard ratios of `features`, as Cox's regression has them, in five rounds.

    PiecewiseExponentialRegression(
        features={"age": (18, 90)}, time={"weeks": (0, 52)}, event="arrested"
    )

    Or `formula="survival(weeks, arrested) ~ age + C(arm)"`. Further parameters: see
    `PiecewiseExponentialTask`. `posterior_` is of log hazard ratios for one unit of each feature,
    then of baseline log hazards at `posterior_.centres`.
    """

    task_type = PiecewiseExponentialTask
    _answer = "time"
    event = None  # where a formula says it

    def _read(self, formula: str) -> tuple[str, dict[str, str]]:
        found = _SURVIVAL.match(formula)
        if found is None and (self.event is None or not _HAS_TIME.match(formula)):
            raise ValueError(
                "a formula of hazards has time and event left of ~, as "
                f'"survival(weeks, arrested) ~ age": not {formula!r}'
            )
        if found is None:
            return formula, {}
        time, event = (each.strip().strip("`") for each in found.groups())
        if self.event not in (None, event):
            raise ValueError("the formula has another event than `event`")
        return f"`{time}` ~{formula[found.end() :]}", {"event": event}

    def _inputs(self, task: PiecewiseExponentialTask) -> tuple[ColumnBounds, ...]:  # type: ignore[override]
        self._features = task.features
        return self._features

    @property
    def coef_(self) -> FloatVector:
        """Posterior means of the log hazard ratios, shape (q,), for one unit of each feature."""
        self._require_fit()
        return self.posterior_.mean[: len(self._features)]

    @property
    def hazard_ratios_(self) -> FloatVector:
        """The exponentials of `coef_`, shape (q,); `posterior_.hazard_ratios` has intervals."""
        return np.exp(self.coef_)

    def predict(self, rows: object) -> FloatVector:
        """Return each row's hazard over that at `posterior_.centres`, shape (n,).

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: a column is missing, or the rows cannot be used.
        """
        away = self._table(rows) - np.array(self.posterior_.centres)
        return np.asarray(np.exp(away @ self.coef_))

    def predict_survival(self, rows: object, level: float = LEVEL) -> SurvivalCurves:
        """Return each row's survival at the ends of all intervals, with what holds `level`.

        Raises:
            NotFittedError, ValueError: as `predict`; or `level` is not between 0 and 1.
        """
        return self.posterior_.survival(self._table(rows), level)

    def plot_survival(
        self,
        rows: object,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        labels: Sequence[str] | None = None,
    ) -> "Axes":
        """Draw each row's survival with its interval and its band, and return the axes.

        Raises:
            NotFittedError, ValueError: as `predict_survival`; or labels are not one for each row.
            ImportError: matplotlib is not installed.
        """
        table = self._table(rows)
        return self.posterior_.plot_survival(
            table, axes, level=level, labels=labels, caption=self._caption
        )
