"""How well public predictions do at each site: scores and calibration, by one sum.

Draws of the noise say how surely the scores are known.
"""

import math
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.queries import PredictionScores
from shoal_protocol.queries.columns import ColumnBounds, ColumnName, Level, Term
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import in_units
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.trust.dictionary import Coding, codings_of_target
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Finite, PositiveSize, Real
from shoal_studies.catalogue.measurements import noisy_count, query_of
from shoal_studies.catalogue.one_round import generator_for, noise_of
from shoal_studies.catalogue.regression import TargetFamily
from shoal_studies.catalogue.study import SUM_BITS, OneRoundStudy
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.posteriors.forms import Known, Number, NumbersPosterior

_LIMITS: Final = {"logistic": 3.0}
"""Of scores, by default: minus the logarithm of .05."""
_LIMIT_OF_NUMBERS: Final = 0.25  # of the target's range, squared
_FEW_CUT: Final = 0.001  # share of scores
_SURELY: Final = 2.0  # standard deviations of noise


class Site(Model):
    """A level of the site: `name`, the `value` that records hold, and what predicts there.

    `coefficients` are the constant and each feature's, in the data's units.
    """

    name: ColumnName
    value: Real
    coefficients: Annotated[tuple[Finite, ...], Field(min_length=2, max_length=251)]


class SiteScore(Model):
    """How well predictions did at a site, by `records` of its: as noise lets it be known.

    `score` is the mean square error in the target's units, or minus the mean logarithm of what
    probability was given to the true class; None where noise hides it. `cut` is the share of
    records whose score was cut, so that the error is larger than `score`. `bias` is the mean
    prediction less the mean target. `explained` is by what share the score is lower than if the
    site's own mean were predicted; None where noise hides that mean's score.
    """

    name: str
    records: Known
    score: Known | None
    cut: Known
    bias: Known
    explained: Known | None


class CalibrationBin(Model):
    """Records of about the same prediction: means of it and of targets, from 0 to 1 in bounds."""

    predicted: Known
    observed: Known


class ValidationPosterior(NumbersPosterior):
    """Scores of predictions at each site and at all, with intervals that are of noise alone.

    `calibration` has the bins that noise does not hide, of all sites together.
    """

    name: Literal["validation"] = "validation"
    family: TargetFamily
    target: str
    width: PositiveSize
    score_limit: PositiveSize
    columns: tuple[str, ...]
    scores: Annotated[tuple[SiteScore, ...], Field(min_length=1)]
    calibration: tuple[CalibrationBin, ...] = ()

    @property
    def title(self) -> str:
        """What it is a posterior of, in words."""
        return f"Validation of predictions of {self.target}"

    @property
    def numbers(self) -> list[Number]:
        """Of each site whose score noise does not hide: score, bias, and the share explained."""
        is_class = self.family == "logistic"
        label, most = "root mean square error", self.score_limit * self.width**2
        if is_class:
            label, most = "log loss", self.score_limit
        found = []
        for each in [each for each in self.scores if each.score is not None] or self.scores[-1:]:
            if each.score is not None:
                name = f"{each.name}: {label}"
                found.append(Number(name, each.score, (0.0, most), is_root=not is_class))
            found.append(Number(f"{each.name}: bias", each.bias, (-self.width, self.width)))
            if each.explained is not None:
                found.append(Number(f"{each.name}: explained", each.explained, (-math.inf, 1.0)))
        return found

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """How many records each site has, and where noise hides the score."""
        return tuple(
            (
                f"Records of {each.name}",
                f"{each.records.mean:.0f} ± {each.records.sd:.0f}"
                + ("; the noise hides their score" if each.score is None else ""),
            )
            for each in self.scores
        )

    @property
    def caution(self) -> str | None:
        """Where so many scores were cut that the error is larger than is shown."""
        found = [
            f"{each.name} ({each.cut.mean:.1%})"
            for each in self.scores
            if each.cut.mean - _SURELY * each.cut.sd > _FEW_CUT
        ]
        if not found:
            return None
        return (
            f"score_limit {self.score_limit:g} cut scores of {', '.join(found)}: errors are larger "
            "than shown; ask again with a larger one"
        )


class ValidationTask(OneRoundStudy):
    """How well predictions of `target` from `features` do at the levels of `site`.

    Each of `sites` has coefficients of its own, public ones: such as those of a model that was
    fitted without it. A record is scored at the holder, by its own site's. `family` is as in a
    regression. A score is cut at `score_limit`: of classes 3, minus the logarithm of .05; else .25,
    a square, the target's range being 1. Lower limits add less noise. Calibration is seen in `bins`
    of one width. Predictions are cut to the target's bounds.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (ValidationPosterior,)
    example: ClassVar[str] = """\
[task]
name = "validation"
family = "normal"              # or logistic, poisson, negative_binomial
site = "site"
sites = [                      # values as records hold them; the constant, then each feature's
    {name = "north", value = 1, coefficients = [90.0, 0.6]},
    {name = "south", value = 2, coefficients = [85.0, 0.7]},
]

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]

[target]
systolic_pressure = [60, 220]

"""

    name: Literal["validation"] = "validation"
    family: TargetFamily
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=250)]
    target: ColumnBounds
    site: ColumnName
    sites: Annotated[tuple[Site, ...], Field(min_length=1, max_length=64)]
    score_limit: Annotated[float, Field(ge=1e-3, le=30.0)] | None = None
    bins: Annotated[int, Field(ge=1, le=20, strict=True)] = 5

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for what in ("name", "value"):
            if len({getattr(each, what) for each in self.sites}) != len(self.sites):
                raise ValueError(f"two sites have the same {what}")
        if any(len(each.coefficients) != len(self.features) + 1 for each in self.sites):
            raise ValueError("each site has a coefficient of the constant and of each feature")
        if self.family in ("poisson", "negative_binomial") and self.target.lower != 0.0:
            raise ValueError("a count's lower bound must be 0")
        self.query()  # names that are distinct
        return self

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (*super().codings, *codings_of_target(self.family, self.target))

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features, the target, and an indicator of each site."""
        sites = (
            ColumnBounds.of_term(
                f"{self.site}[{each.name}]"[:64],
                Term(factors=(Level(variable=self.site, value=each.value),)),
            )
            for each in self.sites
        )
        return (*self.features, self.target, *sites)

    @property
    def limit(self) -> float:
        """Where scores are cut: of classes a logarithm, else a square of part of the range."""
        return self.score_limit or _LIMITS.get(self.family, _LIMIT_OF_NUMBERS)

    def query(self) -> PredictionScores:
        """Return the query of the only round, whose points are in units of the features' bounds."""
        centres = [each.centre for each in self.features]
        scales = [each.half_range for each in self.features]
        points = []
        for constant, *slopes in (each.coefficients for each in self.sites):
            about = sum(map(float.__mul__, slopes, centres), constant)
            points.append((about, *map(float.__mul__, slopes, scales)))
        return PredictionScores(
            columns=self._query_columns(),
            intercept=1.0,
            radius=None,
            grid_bits=SUM_BITS,
            records_per_client=self.records_per_client,
            family=self.family,
            points=tuple(points),
            score_limit=self.limit,
            bins=self.bins,
        )

    def posterior_from(self, released: ReleasedSum) -> ValidationPosterior:
        query = query_of(released, PredictionScores)
        seen = in_units(query, released.values)[:-1].reshape(-1, query.block)
        noise = noise_of(released, 0, query.unit)
        drawn = seen - noise.draw((_DRAWS, *seen.shape), generator_for(released))
        blocks = np.concatenate([drawn, seen[None]])  # the last is as it was seen
        names = [each.name for each in self.sites]
        if len(names) > 1:
            blocks = np.concatenate([blocks, blocks.sum(axis=1, keepdims=True)], axis=1)
            names.append("all sites")
        scores = tuple(self._score(name, blocks[:, place]) for place, name in enumerate(names))
        total, total_sd = noisy_count(released)
        return ValidationPosterior.of(
            records=max(1, round(total)),
            columns=tuple(each.name for each in self.columns),
            mechanism=released.mechanism,
            total=Known(mean=total, sd=total_sd),
            family=self.family,
            target=self.target.name,
            width=self._width,
            score_limit=self.limit,
            scores=scores,
            calibration=self._calibration(blocks[:, -1]),
        )

    @property
    def _width(self) -> float:
        """What 1 is of predictions and targets, in the data's units."""
        return 1.0 if self.family == "logistic" else 2.0 * self.target.half_range

    def _score(self, name: str, blocks: Floats) -> SiteScore:
        """Return what is known of a site by its blocks, shape (n, block), the last as seen."""
        is_class = self.family == "logistic"
        first = self.query().scores  # the bins come after these
        count, predicted, observed = blocks[:, first:].reshape(len(blocks), 3, -1).sum(axis=2).T
        records = np.maximum(count, 1.0)
        score = blocks[:, 0] / records * self.limit
        mean = np.clip(observed / records, _LEAST_SHARE, 1.0 - _LEAST_SHARE)
        if is_class:
            without = -mean * np.log(mean) - (1.0 - mean) * np.log(1.0 - mean)
        else:
            about = blocks[:, 1] / records - (2.0 * mean - 1.0) ** 2
            without = np.maximum(about / 4.0, _LEAST_SHARE**2)
        known = _known(score if is_class else score * self._width**2)
        is_told = known.mean > _SCORE_TOLD * known.sd
        told = is_told and without[-1] > _TOLD * without[:-1].std()
        return SiteScore(
            name=name,
            records=_known(count),
            score=known if is_told else None,
            cut=_known(2.0 * blocks[:, first - 1] / records),
            bias=_known((predicted - observed) / records * self._width),
            explained=_known(1.0 - score / without) if told else None,
        )

    def _calibration(self, blocks: Floats) -> tuple[CalibrationBin, ...]:
        bins = blocks[:, self.query().scores :]
        counts, predicted, observed = np.moveaxis(bins.reshape(len(blocks), 3, -1), 1, 0)
        told = counts[-1] > _TOLD * counts[:-1].std(axis=0) + 1.0
        return tuple(
            CalibrationBin(
                predicted=_known(_share(predicted[:, place], counts[:, place])),
                observed=_known(_share(observed[:, place], counts[:, place])),
            )
            for place in np.flatnonzero(told)
        )


_DRAWS: Final = 1000
_TOLD: Final = (
    4.0  # standard deviations from none: of fewer records, or less variance, no share is told
)
_SCORE_TOLD: Final = 2.0  # and of a score
_LEAST_SHARE: Final = 1e-3  # of a class, and of a target's variance the square


def _share(part: Floats, whole: Floats) -> Floats:
    return np.asarray(np.clip(part / np.maximum(whole, 1.0), 0.0, 1.0))


def _known(values: Floats) -> Known:
    """Return the last value, and how far the draws before it spread about it."""
    *_, seen = values.tolist()
    return Known(mean=seen, sd=float(np.sqrt(np.mean((values[:-1] - seen) ** 2))))
