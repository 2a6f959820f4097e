"""How well public predictions do at each site: scores and calibration, by one sum."""

import math
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from shoal_protocol.queries import PredictionScores
from shoal_protocol.queries.columns import ColumnBounds, ColumnName, Level, Term
from shoal_protocol.trust.dictionary import Coding, codings_of_target
from shoal_protocol.wire.encoding import Finite, PositiveSize, Real
from shoal_studies.catalogue.regression import TargetFamily
from shoal_studies.catalogue.study import SUM_BITS, OneRoundStudy
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.posteriors.forms import Known, Number, NumbersPosterior, Part

_LIMITS: Final = {"logistic": 3.0}
"""Of scores, by default: minus the logarithm of .05."""
_LIMIT_OF_NUMBERS: Final = 0.25  # of the target's range, squared
_FEW_CUT: Final = 0.001  # share of scores
_SURELY: Final = 2.0  # standard deviations of noise


class Site(Part):
    """A level of the site: `name`, the `value` that records hold, and what predicts there.

    `coefficients` are the constant and each feature's, in the data's units.
    """

    name: ColumnName
    value: Real
    coefficients: Annotated[tuple[Finite, ...], Field(min_length=2, max_length=251)]


class SiteScore(Part):
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


class CalibrationBin(Part):
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
