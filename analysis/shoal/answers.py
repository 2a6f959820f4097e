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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.moments import SCATTER, MomentsPosterior, pairs_of
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior, RegressionTask, Verdict
from shoal_studies.coding import near_to
from shoal_studies.posteriors.base import (
    LEVEL,
    BasePosterior,
    RegressionPosterior,
    normal_intervals,
    require_level,
)
from shoal_studies.posteriors.summaries import Summary, quantile_headings
from shoal_studies.quasi_likelihood import NoisyMoments
from shoal_studies.regression.judging import judged_linear
from shoal_studies.regression.linear import coefficients_of, log_evidence
from shoal_studies.regression.measured import Measured

Floats = NDArray[np.float64]


class _Shown:
    """What prints its summary, in notebooks as HTML."""

    summary: Any

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return str(self.summary()._repr_html_())


@dataclass(frozen=True)
class Estimates(_Shown):
    """Numbers `names` with `mean` and `sd`, shapes (k,), normal and within `limits`.

    `caution` is to be read first, if there is one.
    """

    title: str
    names: tuple[str, ...]
    mean: Floats
    sd: Floats
    limits: tuple[float, float] = (-math.inf, math.inf)
    caution: str | None = None

    def interval(self, level: float = LEVEL) -> Floats:
        """Return central intervals that hold `level` of each, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        return np.clip(normal_intervals(self.mean, self.sd, level), *self.limits)

    def summary(self, level: float = LEVEL) -> Summary:
        """Return a table of means, standard deviations and intervals.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        rows = tuple(
            (name, f"{mean:.5g}", f"{sd:.3g}", f"{low:.5g}", f"{high:.5g}")
            for name, mean, sd, (low, high) in zip(
                self.names, self.mean, self.sd, self.interval(level), strict=True
            )
        )
        facts = () if self.caution is None else (("Caution", self.caution),)
        return Summary(self.title, ("", "mean", "sd", *quantile_headings(level)), rows, facts)


def chi_square_tail(statistic: float, degrees: int) -> float:
    """Return the probability that a chi-square of so many degrees of freedom is larger.

    By the finite sums of Abramowitz and Stegun, 26.4.4 and 26.4.5.
    """
    half = max(statistic, 0.0) / 2.0
    if half == 0.0:
        return 1.0
    powers = (0.5 if degrees % 2 else 0.0) + np.arange(degrees // 2)
    terms = [each * math.log(half) - half - math.lgamma(each + 1.0) for each in powers.tolist()]
    tail = math.erfc(math.sqrt(half)) if degrees % 2 else 0.0
    return min(tail + math.fsum(map(math.exp, terms)), 1.0)


_ROUNDS: Final = 15  # of bringing simulated eigenvalues to those seen
_LEAST: Final = 1e-3
_UNSURE: Final = 0.5  # of what is taken off for bias
_APART: Final = 2.0  # standard deviations of noise between eigenvalues that are told apart


def _simulated(
    truth: Floats,
    draws: int,
    *,
    products: Floats,
    variances: Floats,
    records: float,
    generator: np.random.Generator,  # noqa: TID251 - no privacy depends on it
) -> Floats:
    """Return what might be seen of correlations `truth`, (m, m), through noise: (draws, m, m).

    The noise is of sd `products`, shape (m, m), between columns, and of relative sd `variances`,
    shape (m,), in their variances; the sampling is that of so many normal `records`, in effect.
    """
    values, vectors = np.linalg.eigh(truth)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    shape = (draws, *truth.shape)
    raw = generator.standard_normal(shape) / np.sqrt(2.0 * records)
    noise = np.triu(generator.standard_normal(shape), 1) * products
    seen = truth + root @ (raw + np.swapaxes(raw, 1, 2)) @ root.T
    seen += noise + np.swapaxes(noise, 1, 2)
    diagonal = np.arange(len(truth))
    relative = np.sqrt(np.log1p(variances**2))  # above 0, whatever the noise
    scale = np.sqrt(seen[:, diagonal, diagonal])
    scale = scale * np.exp(0.5 * relative * generator.standard_normal(shape[:2]))
    seen = seen / (scale[:, :, None] * scale[:, None, :])
    seen[:, diagonal, diagonal] = 1.0
    return np.asarray(seen)


@dataclass(frozen=True)
class PrincipalComponents(_Shown):
    """Components of the correlations of `columns`, the largest first.

    `shares`, shape (k,), are what each explains of all variance, and `loadings`, shape (m, k), the
    columns' parts in each, of length 1, with standard deviations `loading_sd`. Bias by noise is
    taken off both. Components are a group where noise may have made the differences of what they
    explain: their shares' intervals reach to `group_shares`, the mean of each one's group, shape
    (k,), and their loadings are shown as `any`. `verdict` says which these are.
    """

    columns: tuple[str, ...]
    shares: Floats
    loadings: Floats
    group_shares: Floats
    is_apart: NDArray[np.bool_]
    verdict: Verdict
    loading_sd: Floats
    _share_errors: Floats  # (draws, k)

    def share_interval(self, level: float = LEVEL) -> Floats:
        """Return intervals that hold `level` of each share, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        require_level(level)
        levels = [0.5 - level / 2.0, 0.5 + level / 2.0]
        below, above = np.quantile(self._share_errors, levels, axis=0)
        ends = [
            np.minimum(self.shares - above, self.group_shares),
            np.maximum(self.shares - below, self.group_shares),
        ]
        return np.asarray(np.clip(np.stack(ends, axis=-1), 0.0, 1.0))

    def summary(self, level: float = LEVEL) -> Summary:
        """Return shares with intervals, and loadings.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        ends = self.share_interval(level)
        rows = [
            ("share", *(f"{each:.3g}" for each in self.shares)),
            (f"{level:.0%} of it", *(f"{low:.3g} to {high:.3g}" for low, high in ends)),
        ]
        for name, row, sds in zip(self.columns, self.loadings, self.loading_sd, strict=True):
            found = zip(row, sds, self.is_apart, strict=True)
            shown = (f"{each:.2f} ± {sd:.2f}" if apart else "any" for each, sd, apart in found)
            rows.append((name, *shown))
        numbers = tuple(str(each + 1) for each in range(len(self.shares)))
        facts = (("Verdict", str(self.verdict)),)
        return Summary("Principal components", ("", *numbers), tuple(rows), facts)


def components_of(
    columns: tuple[str, ...],
    seen: Floats,
    simulated: Callable[[Floats, int], Floats],
    *,
    lost: float,
    count: int,
    draws: int,
    generator: np.random.Generator,  # noqa: TID251 - no privacy depends on it
) -> PrincipalComponents:
    """Return the first `count` components of correlations `seen`, shape (m, m), through noise.

    `simulated` returns so many draws of what might be seen of a truth. Rows that were shrunk lost a
    share `lost` of their squares.

    Noise spreads eigenvalues. So those are sought of which as much would be seen as was, on
    average; what is seen of them in single simulations tells how far off it all may be.
    """
    size = len(columns)
    values, vectors = (each[..., ::-1] for each in np.linalg.eigh(seen))
    vectors = vectors * np.where(vectors.sum(axis=0) < 0.0, -1.0, 1.0)
    sought = np.maximum(values, _LEAST)
    for _ in range(_ROUNDS):
        truth = _correlations(vectors, sought)
        found = np.linalg.eigvalsh(simulated(truth, draws // 4 + 1))[:, ::-1]
        sought = np.sort(np.maximum(sought + values - np.median(found, axis=0), _LEAST))[::-1]
    truth = _correlations(vectors, sought)
    exact, axes = (each[..., ::-1] for each in np.linalg.eigh(truth))
    axes = (axes * np.where(np.sum(axes * vectors, axis=0) < 0.0, -1.0, 1.0))[:, :count]
    found, seen_axes = np.linalg.eigh(simulated(truth, draws))
    seen_axes = seen_axes[:, :, ::-1][:, :, :count]
    seen_axes = seen_axes * np.where(np.sum(seen_axes * axes, axis=1) < 0.0, -1.0, 1.0)[:, None]
    errors = (found[:, ::-1] - exact) / size
    shares = exact / size
    unsure = np.hypot(_UNSURE * (shares - values / size), lost * shares)
    errors = errors - np.median(errors, axis=0) + unsure * generator.standard_normal(errors.shape)
    groups = _groups(shares, errors)
    is_apart = np.bincount(groups)[groups] == 1
    means = np.bincount(groups, weights=shares) / np.bincount(groups)
    return PrincipalComponents(
        columns=columns,
        shares=shares[:count],
        loadings=axes,
        group_shares=means[groups][:count],
        is_apart=is_apart[:count],
        verdict=_judged(is_apart[:count]),
        loading_sd=np.asarray((seen_axes - axes).std(axis=0)),
        _share_errors=errors[:, :count],
    )


def _groups(shares: Floats, errors: Floats) -> NDArray[np.int64]:
    """Return the number of each component's group, shape (m,): a clear gap begins a new one."""
    low, high = np.quantile(errors, [0.16, 0.84], axis=0)
    sds = (high - low) / 2.0
    is_clear = shares[:-1] - shares[1:] > _APART * np.hypot(sds[:-1], sds[1:])
    return np.append(0, np.cumsum(is_clear))


def _judged(is_apart: NDArray[np.bool_]) -> Verdict:
    if is_apart.all():
        return Verdict(kind="trustworthy", reasons=())
    which = ", ".join(str(each + 1) for each in np.flatnonzero(~is_apart))
    said = f"noise hides the loadings of components {which}: others explain about as much"
    return Verdict(kind="doubtful", reasons=(said,))


def _correlations(vectors: Floats, values: Floats) -> Floats:
    matrix = (vectors * values) @ vectors.T
    scale = np.sqrt(np.diagonal(matrix))
    return np.asarray(matrix / np.outer(scale, scale))


# Contrasts, differences and tests of a regression's coefficients, from its posterior alone.
#
# from shoal.answers import contrast, wald
#
# contrast(model, {"dose": 10.0, "age": -1.0}).interval(0.9)    # model: fitted, or its posterior
# wald(model, ["age", "age2"]).p_value


Coefficients = Any
"""A fitted regression, or its posterior."""

Weights = Mapping[str, float]
"""Of coefficients, by name: {"intercept": 1.0, "age": 50.0} is what is expected at an age of 50."""


@dataclass(frozen=True)
class WaldTest:
    """A Wald test: `statistic` has `degrees` degrees of freedom, and `p_value` is its tail."""

    statistic: float
    degrees: int
    p_value: float

    def __str__(self) -> str:
        return f"chi-square {self.statistic:.4g} on {self.degrees}: p = {self.p_value:.3g}"


def contrast(of: Coefficients, *weights: Weights) -> Estimates:
    """Return weighted sums of coefficients, one for each of `weights`.

    Raises:
        ValueError: there are no weights, or a name is none of the coefficients'.
    """
    posterior = _posterior(of)
    matrix = _matrix(posterior, weights)
    variance = np.einsum("ij,jk,ik->i", matrix, posterior.covariance_matrix, matrix)
    return Estimates(
        title=f"Contrasts in {posterior.title[:1].lower()}{posterior.title[1:]}",
        names=tuple(" ".join(f"{by:+g} {name}" for name, by in each.items()) for each in weights),
        mean=matrix @ posterior.mean,
        sd=np.sqrt(np.maximum(variance, 0.0)),
    )


def difference(one: Coefficients, other: Coefficients) -> Estimates:
    """Return how much larger coefficients are in `one` than in `other`.

    Within one regression take `contrast(of, {"a": 1.0, "b": -1.0})`. The posteriors are taken as
    independent: of different people, with noise of their own.

    Raises:
        ValueError: they are not of one kind of regression of one target on the same features.
    """
    one, other = _posterior(one), _posterior(other)
    names = one.names
    if one.title != other.title:
        raise ValueError(
            f"coefficients of different regressions have no difference: {one.title}, and "
            f"{other.title}"
        )
    if set(names) != set(other.names):
        apart = sorted(set(names) ^ set(other.names))
        raise ValueError(
            f"only one of the two has {', '.join(apart)}, for which its other coefficients are "
            "adjusted: fit both with the same features"
        )
    there = [other.names.index(name) for name in names]
    return Estimates(
        title=f"{one.title}: differences between two posteriors",
        names=names,
        mean=one.mean - other.mean[there],
        sd=np.hypot(one.sd, other.sd[there]),
    )


def wald(
    of: Coefficients,
    hypotheses: Sequence[str | Weights],
    values: Sequence[float] | None = None,
) -> WaldTest:
    """Test that coefficients, or weighted sums of them, all have these `values`: None, 0.

    The posterior takes the place of an estimate: a prior that decides makes the test cautious.

    Raises:
        ValueError: there is no hypothesis, a name is none of the coefficients', values are not one
            for each, or one hypothesis follows from others.
    """
    posterior = _posterior(of)
    weights = [{each: 1.0} if isinstance(each, str) else each for each in hypotheses]
    matrix = _matrix(posterior, weights)
    supposed = np.zeros(len(matrix)) if values is None else np.asarray(values, dtype=np.float64)
    if supposed.shape != (len(matrix),):
        raise ValueError("there must be one value for each hypothesis")
    away = matrix @ posterior.mean - supposed
    covariance = matrix @ posterior.covariance_matrix @ matrix.T
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 1e-300))
    correlations = covariance / np.outer(scale, scale)
    if np.linalg.matrix_rank(correlations, tol=1e-10) < len(matrix):
        raise ValueError("one hypothesis follows from the others: leave it out")
    statistic = float(away / scale @ np.linalg.solve(correlations, away / scale))
    return WaldTest(statistic, len(matrix), chi_square_tail(statistic, len(matrix)))


def _posterior(of: Coefficients) -> RegressionPosterior:
    posterior = cast(RegressionPosterior, getattr(of, "posterior_", of))
    if not hasattr(posterior, "covariance_matrix"):
        raise ValueError("coefficients are of a fitted regression, or of its posterior")
    return posterior


def _matrix(posterior: RegressionPosterior, weights: Sequence[Any]) -> Floats:
    if not weights or not all(weights):
        raise ValueError("name one coefficient at least")
    matrix = np.zeros((len(weights), len(posterior.names)))
    for row, each in zip(matrix, weights, strict=True):
        if not isinstance(each, Mapping) or not all(isinstance(by, Real) for by in each.values()):
            raise ValueError(
                'a contrast is weights of coefficients by name, which are numbers: {"age": 10.0}'
            )
        for name, by in each.items():
            if name not in posterior.names:
                those = f"{', '.join(posterior.names)}{near_to(name, posterior.names)}"
                raise ValueError(f"there is no coefficient {name!r}: there are {those}")
            row[posterior.names.index(name)] = by
    return matrix


_REACH: Final = 4.0  # spreads in one unit of the learner, whose residuals are .01 to 1 of it
_PRIOR_SD: Final = 2.5
_HEAVY: Final = 3.0  # times their noise: small variances are known worse, having noisy spreads
_LOST: Final = 0.1  # of rows' squares: more makes intervals doubtful


@dataclass(frozen=True)
class Comparison(_Shown):
    """Models of one target by the evidence for each, all as likely beforehand."""

    target: str
    models: tuple[tuple[str, ...], ...]
    log_evidence: Floats
    probabilities: Floats

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
                    coefficients.mean,
                    covariance,
                    prior,
                    complete=None,
                    target_kept=0.0 if target in self.posterior.unvaried else 1.0,
                    mean_weight=1.0,
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

    def partial_correlations(self, columns: Sequence[str] | None = None) -> Estimates:
        """Return the correlation of each two columns, all others in `columns` being equal.

        From the regressions of each on all others, so hundreds of columns take long.

        Raises:
            ValueError: a name is no column, or is there twice, or there are less than three.
        """
        chosen = self._columns(columns)
        if len(chosen) < 3:
            raise ValueError("partial correlations are of three columns or more")
        slopes, sds = np.zeros((2, len(chosen), len(chosen)))
        residuals = np.zeros(len(chosen))
        for place, target in enumerate(chosen):
            others = [each for each in range(len(chosen)) if each != place]
            prior = np.append(1.0, np.full(len(others), _PRIOR_SD))
            moments = self._moments(target, [chosen[each] for each in others])
            found = coefficients_of(moments, 1.0, prior)
            slopes[place, others] = found.mean[1:]
            sds[place, others] = np.sqrt(np.diagonal(found.covariance)[1:])
            residuals[place] = found.residual_sd
        # The slope of i on j times s_j / s_i, and of j on i times s_i / s_j, are one number.
        ratios = residuals[None, :] / residuals[:, None]
        both, both_sd = (
            (each * ratios + (each * ratios).T)[np.triu_indices(len(chosen), 1)] / 2.0
            for each in (slopes, sds)
        )
        mean = np.clip(both, -1.0, 1.0)
        sd = np.hypot(both_sd, self.posterior.lost * mean)
        names = tuple(each.replace("corr", "partial corr", 1) for each in pairs_of(tuple(chosen)))
        limits, caution = (-1.0, 1.0), self.posterior.caution
        return Estimates("Partial correlations", names, mean, sd, limits, caution)

    def principal_components(
        self,
        generator: np.random.Generator,  # noqa: TID251 - no privacy depends on it
        *,
        columns: Sequence[str] | None = None,
        count: int = 3,
        draws: int = 200,
    ) -> PrincipalComponents:
        """Return the first `count` principal components of the correlations of columns.

        `generator` simulates the noise, for bias and intervals.

        Raises:
            ValueError: a name is no column, or is there twice, or `count` is not from 1 to as many.
        """
        chosen = self._columns(columns)
        if not 1 <= count <= len(chosen):
            raise ValueError("count must be from 1 to the number of columns")
        places = self._places(chosen)
        variances, errors = self.posterior.variances
        roots = np.sqrt(variances[places])
        noise = self.posterior.product_sd / self.posterior.record_count
        simulated = partial(
            _simulated,
            products=noise / np.outer(roots, roots),
            variances=_HEAVY * errors[places],
            records=self.posterior.record_count / SCATTER,
            generator=generator,
        )
        found = components_of(
            tuple(chosen),
            self.posterior.seen[np.ix_(places, places)],
            simulated,
            lost=self.posterior.lost,
            count=count,
            draws=draws,
            generator=generator,
        )
        return replace(found, verdict=self._verdict(found.verdict))

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

    def _columns(self, columns: Sequence[str] | None) -> list[str]:
        chosen = list(self.posterior.columns if columns is None else columns)
        if len(chosen) < 2:
            raise ValueError("name two columns at least")
        self._places(chosen)
        return chosen

    def _places(self, names: Sequence[str]) -> list[int]:
        """Return where columns are."""
        if isinstance(names, str) or len(set(names)) != len(names):
            raise ValueError("columns are a list of names, each of them once")
        if unknown := [each for each in names if each not in self.posterior.columns]:
            raise ValueError(
                f"there is no column {unknown[0]!r}: there are {', '.join(self.posterior.columns)}"
            )
        return [self.posterior.columns.index(each) for each in names]
