"""Leaves one site out after another: how well models do where they were not fitted."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

from shoal.estimators.base import Estimator
from shoal.estimators.columns import levels_in
from shoal.estimators.parameters import NotFittedError, described
from shoal.estimators.regressions import MeasuredRegression
from shoal.formulas import Known, Part, levels_of
from shoal.jobs.federation import Learning
from shoal_protocol.privacy.job_costs import PrivacySpent
from shoal_protocol.queries.columns import Centred, ColumnBounds, OtherLevel, Term
from shoal_studies.catalogue.regression import RegressionTask
from shoal_studies.catalogue.validation import ValidationPosterior, ValidationTask
from shoal_studies.posteriors.base import LEVEL
from shoal_studies.posteriors.summaries import Summary


class Validation(Estimator[ValidationPosterior]):
    """Scores of public predictions at each site.

    Validation(family="logistic", features={"age": (18, 90)}, target={"ill": (0, 1)},
               site={"site": ("north", "south")}, sites={"north": (-3, .04), "south": (-3, .05)})

    `site` is one variable with its levels, and `sites` has coefficients for each, the constant
    first; or both are as in the task. Other parameters: see `ValidationTask`. `LeaveOneSiteOut`
    fits them itself.
    """

    task_type = ValidationTask

    def _known(self) -> Known:
        return super()._known().joined(levels_in(self.site, "site"))

    def _designed(self, given: dict[str, Any], known: Known) -> dict[str, Any]:
        given = super()._designed(given, known)
        if isinstance(given["site"], str):
            if any(isinstance(each, str | int | float) for each in given["sites"]):
                raise ValueError(
                    'site is one variable with its levels, {"site": ("north", "south")}, and sites '
                    'has coefficients for each: {"north": (-3, 0.04), "south": (-3, 0.05)}'
                )
            return given
        name = _name_of(given["site"])
        levels, coefficients = dict(levels_of(Part(name, "category", name), known)), given["sites"]
        if not isinstance(coefficients, Mapping) or levels.keys() != coefficients.keys():
            raise ValueError(f"sites must have coefficients for each of {', '.join(levels)}")
        given["site"] = name
        given["sites"] = [
            {"name": level, "value": value, "coefficients": coefficients[level]}
            for level, value in levels.items()
        ]
        return given


class LeaveOneSiteOut:
    """Fits a regression without each site, and scores its predictions there.

    LeaveOneSiteOut(LogisticRegression(formula="ill ~ age"), site={"site": ("north", "south")})

    That is a job for each site, and one that scores: each at the price of the federation that `fit`
    takes. Records of the site left out have a constant of their own, and nothing else; so they tell
    nothing of the rest. They still add their noise, and everybody is asked.

    After `fit`: `models_` by site, `posterior_` with the scores, and `privacy_` of every job.
    """

    models_: dict[str, MeasuredRegression]
    validation_: Validation

    def __init__(
        self,
        model: MeasuredRegression,
        *,
        site: Mapping[str, Sequence[str]],
        score_limit: float | None = None,
        bins: int = 5,
    ) -> None:
        """Take the model, and the site's variable with its levels.

        Raises:
            ValueError: `site` is not one variable with two levels or more.
        """
        self.model = model
        self.site = site
        self.score_limit = score_limit
        self.bins = bins
        _name_of(site)

    def _known(self) -> Known:
        return self.model._known().joined(levels_in(self.site, "site"))

    def _lacking(self) -> set[str]:
        return self.model._lacking()

    def fit(self, federation: Learning) -> Self:
        """Fit a model without each site, score them where they were not fitted, return itself.

        Raises:
            ValueError: a parameter is not usable, or a feature reads the site; nothing was spent.
            JobRefused, OutOfBudget, JobFailed, JobInterrupted, Unavailable: as `Estimator.fit`;
                what jobs before it cost is spent.
        """
        there, known = described(cast(Any, self), federation)
        task, name = self.model.to_task(known), _name_of(self.site)
        levels = levels_of(Part(name, "category", name), self._known().over(known))
        without = {level: self._without(task, name, value) for level, value in levels}
        for each in without.values():
            each.to_task()
        nothing = (0.0,) * (len(task.features) + 1)
        self._validation(task, dict.fromkeys(without, nothing)).to_task(known)
        models = {level: model.fit(there) for level, model in without.items()}
        coefficients = {level: _elsewhere(task, each) for level, each in models.items()}
        self.validation_ = self._validation(task, coefficients).fit(there)
        self.models_ = models
        return self

    def _without(self, task: RegressionTask, site: str, value: float) -> MeasuredRegression:
        """Return the model with all features 0 at a site, which has a constant of its own.

        Raises:
            ValueError: a feature reads the site, or something is pooled.
        """
        if task.offset is not None or task.weights is not None:
            raise ValueError("a model that leaves sites out has neither offset nor weights")
        other = OtherLevel(variable=site, value=value)
        features = [ColumnBounds.of_term("elsewhere", Term(factors=(other,)))]
        for each in task.features:
            # about the middle of its bounds: 0 elsewhere then is a value like others
            middle = each.centre
            centred = Centred(variable=each.name, lower=each.lower, upper=each.upper, at=middle)
            factors = (centred,) if each.term is None else each.term.factors
            if site in (factor.variable for factor in factors) or task.pooled is not None:
                raise ValueError("a model has no effects of the site that is left out")
            if len(factors) > 3:
                raise ValueError("a term of four factors cannot be left out at a site")
            features.append(
                ColumnBounds.of_term(f"{each.name} elsewhere", Term(factors=(*factors, other)))
            )
        given = self.model.get_params() | {
            "formula": None,
            "variables": None,
            "features": tuple(features),
            "target": task.target,
        }
        return type(self.model)(**given)

    def _validation(
        self, task: RegressionTask, coefficients: Mapping[str, tuple[float, ...]]
    ) -> Validation:
        """Return what scores the coefficients of each site."""
        return Validation(
            family=task.family,
            features=task.features,
            target=task.target,
            site=self.site,
            sites=coefficients,
            score_limit=self.score_limit,
            bins=self.bins,
            records_per_client=task.records_per_client,
        )

    @property
    def posterior_(self) -> ValidationPosterior:
        """The scores.

        Raises:
            NotFittedError: nothing was fitted yet.
        """
        return self._scored().posterior_

    @property
    def privacy_(self) -> tuple[PrivacySpent, ...]:
        """What each job cost each client: those without a site, then that which scored.

        Raises:
            NotFittedError: nothing was fitted yet.
        """
        last = self._scored().privacy_
        return (*(each.privacy_ for each in self.models_.values()), last)

    def summary(self, level: float = LEVEL) -> Summary:
        """Return a table of scores with intervals, and what all jobs cost together.

        Raises:
            NotFittedError: nothing was fitted yet.
            ValueError: `level` is not strictly between 0 and 1.
        """
        spent = self.privacy_
        whole = PrivacySpent(
            epsilon=sum(each.epsilon for each in spent),
            delta=sum(each.delta for each in spent),
            mu=math.hypot(*(each.mu for each in spent)),
        )
        return self._scored().summary(level).with_facts((f"All {len(spent)} jobs", str(whole)))

    def _scored(self) -> Validation:
        if not hasattr(self, "validation_"):
            raise NotFittedError("nothing is fitted yet: call fit first")
        return self.validation_


def _elsewhere(task: RegressionTask, fitted: MeasuredRegression) -> tuple[float, ...]:
    """Return a task's coefficients where a model that left a site out was fitted."""
    constant, elsewhere, *slopes = fitted.posterior_.mean.tolist()
    for slope, each in zip(slopes, task.features, strict=True):
        if each.term is None:
            elsewhere -= slope * each.centre
    return (constant + elsewhere, *slopes)


def _name_of(site: object) -> str:
    """Return the name of the variable of sites.

    Raises:
        ValueError: it is not one variable with its levels.
    """
    found = levels_in(site, "site").references
    if not isinstance(site, Mapping) or len(site) != 1 or len(found) != 1:
        raise ValueError('site is one variable with its levels, {"site": ("north", "south")}')
    return next(iter(found))
