"""The estimators that count levels: cohort cards, survival curves, proportions.

Levels are texts, or numbers that records hold. Of a text records hold its place in the data
dictionary, which is what a task has, beside what the place is called.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.estimators.base import Estimator
from shoal.estimators.parameters import OfLevels
from shoal.estimators.survival import OfEvents
from shoal.formulas import Known, level_of, named
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.trust.dictionary import Category, Flag
from shoal_protocol.wire.encoding import canonical_text
from shoal_studies.catalogue.cells import CategoricalPosterior, CategoricalTask
from shoal_studies.catalogue.cohort_card import CohortCardPosterior, CohortCardTask
from shoal_studies.catalogue.kaplan_meier import KaplanMeierPosterior, KaplanMeierTask
from shoal_studies.coding import is_names, near_to


class CohortCard(OfLevels, Estimator[CohortCardPosterior]):
    """The 'Table 1' of a study: counts, missing values, means, spreads, quantiles, histograms.

    CohortCard(variables={"age": (18, 90), "smoker": ("no", "yes")}, crosses=[("smoker", "age")])

    Names alone, variables=["age", "smoker"], take bounds and levels from the data dictionary.
    {"age": {"lower": 18, "upper": 90, "bins": 64}} says more of a number, {"stage": {"levels": [1,
    2, 3]}} names levels that are numbers, and either may have a "weight". Further parameters: see
    `CohortCardTask`.
    """

    task_type = CohortCardTask
    _leveled = "variables"

    def _listed(self) -> list[dict[str, Any]]:
        """Return what is said of each variable."""
        said = self.variables
        if is_names(said):
            said = {name: {} for name in said}
        if not isinstance(said, Mapping):
            raise ValueError(
                'CohortCard: variables are a mapping, {"age": (18, 90), "smoker": ("no", "yes")}, '
                "or a list of names"
            )
        return [_described(canonical_text(str(name)), each) for name, each in said.items()]

    def _levels(self) -> Mapping[str, Any]:
        return {
            each["name"]: each.get("levels")
            for each in self._listed()
            if each["kind"] == "category" or not {"lower", "upper"} <= each.keys()
        }

    def _designed(self, given: dict[str, Any], known: Known) -> dict[str, Any]:
        listed = [_completed(each, known) for each in self._listed()]
        names = [each["name"] for each in listed]
        for name in np.ravel(list(self.crosses)).tolist():
            if name not in names:
                near = near_to(str(name), names)
                raise ValueError(f"crosses: {name!r} is none of the card's variables{near}")
        return given | {"variables": listed}


class KaplanMeier(OfLevels, OfEvents, Estimator[KaplanMeierPosterior]):
    """Survival curves from counts over intervals of time, and the log-rank test.

    KaplanMeier(
        time={"weeks": (0, 120)}, event="died", group={"arm": ("placebo", "drug")}
    )

    An event is coded 0 and 1, or its value is named, event={"status": "dead"}. A group that is
    named alone has the levels of the data dictionary. Further parameters: see `KaplanMeierTask`.
    """

    task_type = KaplanMeierTask
    _leveled = "group"
    _fixed = OfEvents._fixed | {"levels", "labels"}

    def _designed(self, given: dict[str, Any], known: Known) -> dict[str, Any]:
        given = super()._designed(given, known)
        for name, levels in self._levels().items():
            given |= {"group": name} | counted(name, levels, known)
        times = (self.time,) if isinstance(self.time, str | ColumnBounds) else self.time
        named = (*times, given["event"], given["group"])
        found = [known.variables[each] for each in named if each in known.variables]
        filled = (each.name for each in found if each.indicator is not None)
        return given | {"indicators": tuple(dict.fromkeys((*self.indicators, *filled)))}


class Categorical(OfLevels, Estimator[CategoricalPosterior]):
    """The probabilities of the levels of a column.

    Categorical(column={"group": ("O", "A", "B", "AB")})

    A column that is named alone has the levels of the data dictionary. Further parameters: see
    `CategoricalTask`.
    """

    task_type = CategoricalTask
    _leveled = "column"
    _fixed = frozenset({"name", "levels", "labels"})

    def _designed(self, given: dict[str, Any], known: Known) -> dict[str, Any]:
        [(name, levels)] = self._levels().items()
        return given | {"column": name} | counted(name, levels, known)


def counted(name: str, said: Any, known: Known) -> dict[str, Any]:
    """Return `levels` of a variable as records hold them, and their `labels`, where it has texts.

    Raises:
        ValueError: a level is none of the variable's, or nothing says what its levels are.
    """
    variable = known.variables.get(name) if said is not None else named(known.variables, name)
    if not isinstance(variable, Category):
        if said is None and not isinstance(variable, Flag):
            raise ValueError(f"{name!r} is no category: list its levels")
        return {"levels": (0.0, 1.0) if said is None else said}
    chosen = variable.levels if said is None else said
    listed = [level_of(variable, each, "levels") for each in chosen]
    labels, levels = zip(*listed, strict=True)
    return {"levels": levels, "labels": labels}


def _described(name: str, said: object) -> dict[str, Any]:
    """Return what is said of a variable, with a `kind`: None where the dictionary has to tell."""
    if isinstance(said, Mapping):
        kind = "category" if "levels" in said else "number" if "lower" in said else None
        return {"kind": kind, **said, "name": name}
    variable = Known.given({name: said}, "variables").variables[name]
    if isinstance(variable, Category):
        return {"kind": "category", "name": name, "levels": variable.levels}
    lower, upper = variable.limits
    return {"kind": "number", "name": name, "lower": lower, "upper": upper}


def _completed(said: dict[str, Any], known: Known) -> dict[str, Any]:
    """Return what is said of a variable, with what the dictionary says.

    Raises:
        ValueError: there is no such variable, or it is of another kind.
    """
    name, variable = said["name"], known.variables.get(said["name"])
    kind = said["kind"]
    if variable is not None and variable.indicator is not None:  # else what fills gaps is counted
        said = {"indicator": True, **said}
    if kind is None:
        variable = named(known.variables, name)
        kind = "category" if isinstance(variable, Category | Flag) else "number"
    if kind == "category":
        levels = counted(name, said.get("levels"), known)
        return {**said, "kind": kind, **levels}
    if isinstance(variable, Category):
        raise ValueError(
            f"{name!r} is no number: it is a category, with the levels {', '.join(variable.levels)}"
        )
    if {"lower", "upper"} <= said.keys():
        return said
    lower, upper = named(known.variables, name).limits
    return {"lower": lower, "upper": upper, **said, "kind": kind}
