"""The estimator of scores: how well public predictions do at each site."""

from collections.abc import Mapping
from typing import Any

from shoal.estimators.base import Estimator
from shoal.estimators.columns import levels_in
from shoal.formulas import Known, Part, levels_of
from shoal_studies.catalogue.validation import ValidationPosterior, ValidationTask


class Validation(Estimator[ValidationPosterior]):
    """Scores of public predictions at each site.

    Validation(family="logistic", features={"age": (18, 90)}, target={"ill": (0, 1)},
               site={"site": ("north", "south")}, sites={"north": (-3, .04), "south": (-3, .05)})

    `site` is one variable with its levels, and `sites` has coefficients for each, the constant
    first; or both are as in the task. Other parameters: see `ValidationTask`.
    """

    task_type = ValidationTask

    def _known(self) -> Known:
        return super()._known().joined(levels_in(self.site, "site"))

    def _designed(self, given: dict[str, Any], known: Known) -> dict[str, Any]:
        given = super()._designed(given, known)
        site, named = given["site"], levels_in(given["site"], "site").references
        is_as_in_the_task = isinstance(site, str) and not any(
            isinstance(each, str | int | float) for each in given["sites"]
        )
        if is_as_in_the_task:
            return given
        if not isinstance(site, Mapping) or len(site) != 1 or len(named) != 1:
            raise ValueError(
                'site is one variable with its levels, {"site": ("north", "south")}, and sites has '
                'coefficients for each: {"north": (-3, 0.04), "south": (-3, 0.05)}'
            )
        [name] = named
        levels, coefficients = dict(levels_of(Part(name, "C", name), known)), given["sites"]
        if not isinstance(coefficients, Mapping) or levels.keys() != coefficients.keys():
            raise ValueError(f"sites must have coefficients for each of {', '.join(levels)}")
        given["site"] = name
        given["sites"] = [
            {"name": level, "value": value, "coefficients": coefficients[level]}
            for level, value in levels.items()
        ]
        return given
