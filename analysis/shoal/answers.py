"""Many answers from one purchase: what a released matrix of moments tells, at no further price.

from shoal.answers import Answers

answers = Answers(report.posterior)    # of a job of the study "moments", or model.answers_
answers.linear_model("pressure", ["age", "dose"]).summary()
answers.compare("pressure", [["age"], ["age", "dose"]])

All is computed from the posterior in the job's certificate. Each answer is right by itself; who
asks hundreds finds some that chance made, so say how many were asked.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.design import Floats
from shoal_studies.catalogue.moments import MomentsPosterior
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior, RegressionTask, Verdict
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.posteriors.summaries import Summary
from shoal_studies.quasi_likelihood import NoisyMoments
from shoal_studies.regression.judging import judged_linear
from shoal_studies.regression.linear import coefficients_of, log_evidence
from shoal_studies.regression.measured import Measured

_REACH: Final = 4.0  # spreads in one unit of the learner, whose residuals are .01 to 1 of it
_PRIOR_SD: Final = 2.5
_LOST: Final = 0.1  # of rows' squares: more makes intervals doubtful


@dataclass(frozen=True)
class Comparison:
    """Models of one target by the evidence for each, all as likely beforehand."""

    target: str
    models: tuple[tuple[str, ...], ...]
    log_evidence: Floats
    probabilities: Floats

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def summary(self) -> Summary:
        """Return a table, the most probable model first."""
        order = np.argsort(-self.probabilities, kind="stable")
        rows = tuple(
            (
                " + ".join(("1", *self.models[each])),
                f"{self.log_evidence[each] - self.log_evidence.max():.2f}",
                f"{self.probabilities[each]:.3f}",
            )
            for each in order.tolist()
        )
        return Summary(f"Models of {self.target}", ("", "log evidence", "probability"), rows, ())


@dataclass(frozen=True)
class Answers:
    """What a posterior of moments tells; every answer knows of the noise, and none costs anything.

    Models are linear, and normal about their line; a binary column may be a feature, or a target
    whose mean, a probability, is taken as linear.
    """

    posterior: MomentsPosterior

    @classmethod
    def of(cls, posterior: BasePosterior) -> "Answers":
        """Return the answers of a posterior, as a report or a certificate has it.

        Raises:
            ValueError: it is of another study.
        """
        if not isinstance(posterior, MomentsPosterior):
            raise ValueError(f'a posterior of the study "moments" answers, not {posterior.name!r}')
        return cls(posterior)

    def linear_model(
        self,
        target: str,
        features: Sequence[str] | None = None,
        *,
        prior_sd: float = _PRIOR_SD,
    ) -> MeasuredRegressionPosterior:
        """Return the linear regression of a column on others, None: on all others.

        As `RegressionTask` of the family "normal" has it; so are prior and `prior_sd`.

        Raises:
            ValueError: a name is no column, or is there twice; or `prior_sd` is out of range.
        """
        chosen = self._features(target, features)
        if not chosen:
            raise ValueError("a model needs one feature at least")
        columns = [self.posterior.variables[each] for each in self._places([*chosen, target])]
        bounds = [
            ColumnBounds(name=each.name, lower=each.lower, upper=each.upper) for each in columns
        ]
        task = RegressionTask(
            family="normal", features=tuple(bounds[:-1]), target=bounds[-1], prior_sd=prior_sd
        )
        found = Measured(
            centres=np.array([each.centre for each in columns]),
            spreads=np.array([each.spread for each in columns]),
            looseness=np.array([each.looseness for each in columns]),
            shares=np.array([0.5 if each.is_binary else math.nan for each in columns]),
            one_bound=np.zeros(len(columns)),
            errors=np.zeros(len(columns)),
        )
        moments = self._moments(target, chosen)
        prior = np.append(1.0, prior_sd * found.looseness[:-1])
        coefficients = coefficients_of(moments, 1.0, prior)
        pulled = self.posterior.lost * coefficients.mean
        pulled[0] = 0.0
        covariance = coefficients.covariance + np.diag(pulled**2)
        spread = float(found.spreads[-1])
        transform = found.to_data_units(spread)
        offset = np.zeros(len(prior))
        offset[0] = found.centres[-1]
        residual = _REACH * spread / math.sqrt(self.posterior.kept)
        return MeasuredRegressionPosterior(
            family="normal",
            names=("intercept", *chosen),
            target=target,
            coefficients=tuple((transform @ coefficients.mean + offset).tolist()),
            covariance=(transform @ covariance @ transform.T).tolist(),
            prior_mean=tuple(offset.tolist()),
            prior_sd=tuple(np.sqrt(transform**2 @ prior**2).tolist()),
            scatter=coefficients.residual_sd * residual,
            scatter_sd=coefficients.residual_sd_sd * residual,
            spreads=tuple(found.spreads[:-1].tolist()),
            records=self.posterior.records,
            verdict=self._verdict(
                judged_linear(
                    task,
                    found,
                    moments,
                    coefficients.mean[1:],
                    covariance[1:, 1:],
                    target_varies=target not in self.posterior.unvaried,
                )
            ),
        )

    def compare(self, target: str, models: Sequence[Sequence[str]]) -> Comparison:
        """Return how probable each model of a target is: each a list of features, empty for none.

        By the evidence of the same moments, those of all features that any model names.

        Raises:
            ValueError: there are no models, or a name is no column, or is there twice.
        """
        chosen = tuple(self._features(target, each) for each in models)
        union = tuple(dict.fromkeys(itertools.chain(*chosen)))
        if not union:
            raise ValueError("name two models at least, one of them with a feature")
        moments = self._moments(target, union)
        found = np.array(
            [log_evidence(moments, 1.0, np.isin(union, each)) for each in map(list, chosen)]
        )
        weights = np.exp(found - found.max())
        return Comparison(target, chosen, found, weights / weights.sum())

    def _moments(self, target: str, features: Sequence[str]) -> NoisyMoments:
        """Return the moments of constant, features and target, in units of `_REACH` spreads."""
        places = [0, *(each + 1 for each in self._places([*features, target]))]
        unit, posterior = _REACH**-2.0, self.posterior
        return NoisyMoments(
            matrix=posterior.matrix[np.ix_(places, places)] * unit,
            diagonal_sd=posterior.square_sd * unit,
            off_diagonal_sd=posterior.product_sd * unit,
            records=posterior.record_count,
            records_sd=posterior.record_count_sd,
            largest_square=posterior.squared_radius * unit,
        )

    def _verdict(self, judged: Verdict) -> Verdict:
        if self.posterior.lost <= _LOST:
            return judged
        said = f"long rows were shrunk, by about {self.posterior.lost:.0%} of all squares"
        earlier = judged.reasons if judged.kind == "doubtful" else ()
        return Verdict(kind="doubtful", reasons=(*earlier, said))

    def _features(self, target: str, features: Sequence[str] | None) -> tuple[str, ...]:
        if features is None:
            features = [each for each in self.posterior.columns if each != target]
        self._places([*features, target])
        return tuple(features)

    def _places(self, names: Sequence[str]) -> list[int]:
        """Return where columns are."""
        if isinstance(names, str) or len(set(names)) != len(names):
            raise ValueError("columns are a list of names, each of them once")
        if unknown := [each for each in names if each not in self.posterior.columns]:
            raise ValueError(
                f"there is no column {unknown[0]!r}: there are {', '.join(self.posterior.columns)}"
            )
        return [self.posterior.columns.index(each) for each in names]
