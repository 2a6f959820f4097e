"""The estimator of hazard ratios, and what asks for events."""

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from shoal.estimators.parameters import Parameters
from shoal.estimators.predicting import ReadsRows
from shoal.estimators.regressions import Judged
from shoal.formulas import Known, level_of
from shoal_protocol.queries.design import Floats
from shoal_protocol.trust.dictionary import event_fault_of
from shoal_protocol.wire.encoding import canonical_text
from shoal_studies.catalogue.piecewise_exponential import (
    PiecewiseExponentialPosterior,
    PiecewiseExponentialTask,
    SurvivalCurves,
)
from shoal_studies.coding import Variable
from shoal_studies.posteriors.base import LEVEL

_HAS_TIME: Final = re.compile(r"\s*(\w+|`[^`]+`)\s*~")
_SURVIVAL: Final = re.compile(r"\s*survival\(([^,()]+),([^,()]+)\)\s*~")


class OfEvents(Parameters):
    """What asks for an `event`: a variable that is 0 or 1, or one with the value that is the event.

    event="died", or event={"status": "dead"}, event={"status": 2}: all other values are none.
    """

    _fixed = frozenset({"name", "event_value"})
    _answer = "time"
    _from_zero = True

    def _event(self) -> tuple[str, object]:
        """Return the event's variable, and the value that is the event, None if it is 1.

        Raises:
            ValueError: there is no such thing.
        """
        said = self.event
        if isinstance(said, str):
            return canonical_text(said), None
        if not isinstance(said, Mapping) or len(said) != 1:
            raise ValueError(
                "event is a variable that is 0 or 1, or one with the value that is the event, as "
                '{"status": "dead"}'
            )
        [(name, value)] = said.items()
        return canonical_text(str(name)), value

    def _designed(self, given: dict[str, Any], known: Known) -> dict[str, Any]:
        name, value = self._event()
        variable = known.variables.get(name)
        if value is not None:
            value = _held(name, value, variable)
        elif fault := event_fault_of(variable):
            raise ValueError(fault)
        return super()._designed(given, known) | {"event": name, "event_value": value}


def _held(name: str, value: Any, variable: Variable | None) -> float:
    """Return what records hold where the event's variable has a value.

    Raises:
        ValueError: it never has.
    """
    if variable is not None:
        return level_of(variable, value, "event")[1]
    if not isinstance(value, int | float | np.number | np.bool_):
        raise ValueError(
            f"event: of {name!r} one value is the event, and a number, for levels of it are not "
            "known: of several make a variable that is 1 where it has one of them, and 0 elsewhere"
        )
    return float(value)


class PiecewiseExponentialRegression(OfEvents, ReadsRows, Judged[PiecewiseExponentialPosterior]):
    """Hazard ratios of `features`, as Cox's regression has them, in five rounds.

    PiecewiseExponentialRegression(
        features={"age": (18, 90)}, time={"weeks": (0, 52)}, event="arrested"
    )

    Or `formula="survival(weeks, arrested) ~ age + C(arm)"`. An event is coded 0 and 1, or its value
    is named, event={"status": "dead"}. Further parameters: see `PiecewiseExponentialTask`.
    `posterior_` is of log hazard ratios for one unit of each feature,
    then of baseline log hazards at `posterior_.centres`.
    """

    task_type = PiecewiseExponentialTask
    event: Any = None  # where a formula says it

    def _read(self, formula: str) -> tuple[str, dict[str, str]]:
        found = _SURVIVAL.match(formula)
        if found is None and (self.event is None or not _HAS_TIME.match(formula)):
            raise ValueError(
                "a formula of hazards has time and event left of ~, as "
                f'"survival(weeks, arrested) ~ age": not {formula!r}'
            )
        if found is None:
            return formula, {}
        time, event = (canonical_text(each.strip().strip("`")) for each in found.groups())
        if self.event is not None and super()._event()[0] != event:
            raise ValueError("the formula has another event than `event`")
        return f"`{time}` ~{formula[found.end() :]}", {"event": event}

    def _event(self) -> tuple[str, object]:
        if self.event is None and isinstance(self.formula, str):
            if besides := self._read(self.formula)[1]:
                return besides["event"], None
        return super()._event()

    @property
    def coef_(self) -> Floats:
        """Posterior means of the log hazard ratios, shape (q,), for one unit of each feature."""
        return self.posterior_.mean[: len(self._inputs)]

    def predict(self, rows: object) -> Floats:
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
