"""The estimator of scores: how well public predictions do at each site."""

from collections.abc import Mapping
from typing import Any

from shoal.estimators.base import Estimator
from shoal.estimators.parameters import OfLevels
from shoal.formulas import Known, level_of, named
from shoal_protocol.wire.encoding import canonical_text
from shoal_studies.catalogue.validation import ValidationPosterior, ValidationTask


class Validation(OfLevels, Estimator[ValidationPosterior]):
    """Scores of public predictions at each site.

    Validation(family="logistic", features={"age": (18, 90)}, target={"ill": (0, 1)},
               site="site", sites={"north": (-3, .04), "south": (-3, .05)})

    `site` is a variable, and `sites` has coefficients for each of its levels, the constant first.
    Other parameters: see `ValidationTask`.
    """

    task_type = ValidationTask
    _leveled = "sites"

    def _levels(self) -> Mapping[str, Any]:
        if not isinstance(self.site, str) or not isinstance(self.sites, Mapping):
            raise ValueError(
                'site is a variable, "site", and sites has coefficients for each of its levels, '
                'the constant first: {"north": (-3, 0.04), "south": (-3, 0.05)}'
            )
        return {canonical_text(self.site): tuple(self.sites) if len(self.sites) > 1 else None}

    def _designed(self, given: dict[str, Any], known: Known) -> dict[str, Any]:
        given = super()._designed(given, known)
        variable = named(known.variables, given["site"])
        levels = [level_of(variable, each, "sites") for each in self.sites]
        given["sites"] = [
            {"name": name, "value": value, "coefficients": coefficients}
            for (name, value), coefficients in zip(levels, self.sites.values(), strict=True)
        ]
        return given
