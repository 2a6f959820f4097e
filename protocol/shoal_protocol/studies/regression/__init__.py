"""Generalised linear models in at most five rounds of everybody, in units that are measured."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shoal_protocol.jobs.terms import RoundTerms
from shoal_protocol.posteriors.base import BasePosterior
from shoal_protocol.queries import Query, QueryName
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.regression import round_rules
from shoal_protocol.studies.regression.pooled import PooledFactor
from shoal_protocol.studies.regression.posterior import MeasuredRegressionPosterior, TargetFamily
from shoal_protocol.studies.regression.verdicts import Verdict
from shoal_protocol.studies.study import Study
from shoal_protocol.trust.codings import Coding, codings_of_target

__all__ = [
    "MeasuredRegressionPosterior",
    "PooledFactor",
    "Purpose",
    "RegressionTask",
    "TargetFamily",
    "Verdict",
]

Purpose = Literal["intervals", "prediction"]


class RegressionTask(Study):
    """Bayesian regression of `target` on `features` and a constant, by its `family`:

    - "normal": a number, linear in the features.
    - "logistic": one of two classes, the upper or the lower bound of the target.
    - "poisson", "negative_binomial": a count, whose mean's logarithm is linear.
    - "gamma": a positive number, whose mean's logarithm is linear, and to which it scatters in
      proportion.

    A first round measures centres and spreads of all columns, and later ones take rows in these
    units. So bounds that are too wide or lopsided cost precision, and change nothing else. Rows are
    weighted by their features alone, so that none is long; a linear model counts their norms to
    choose how long. Then one round releases moments of weighted rows, which is all that a linear
    model needs. The others ask three rounds of scores, each where those before lead to.

    `prior_sd` is the prior standard deviation of a coefficient, for a change of the feature by one
    of its standard deviations, in one of the target's if that is a number. `purpose` "prediction",
    of linear models alone, makes predictions err less where noise is strong: four rounds measure
    centres, lengths of rows, spreads and moments in small balls, which bounds far off the middle
    pull. Intervals may then fail, and the verdict says so.

    `offset` is a feature whose coefficient is known to be 1, as the logarithm of a time under
    observation. `weights` are what records count for, over their upper bound.

    `pooled` is a variable whose levels are features, such as the site. Their effects have a normal
    prior about their mean, whose standard deviation is learned, with a half-normal prior of one
    standard deviation of a number, or of 1 on the scale of the link.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (MeasuredRegressionPosterior,)
    example: ClassVar[str] = """\
[task]
name = "regression"
family = "normal"              # or logistic, poisson, negative_binomial, gamma

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]                       # of counts from 0; of classes the upper bound is one of them
systolic_pressure = [60, 220]

"""

    name: Literal["regression"] = "regression"
    family: TargetFamily
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=250)]
    target: ColumnBounds
    offset: ColumnBounds | None = None
    weights: ColumnBounds | None = None
    purpose: Purpose = "intervals"
    prior_sd: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 2.5
    pooled: ColumnName | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [feature.name for feature in self.predictors]
        if len(set(names)) != len(names):
            raise ValueError("two features have the same name")
        if self.target.name in names:
            raise ValueError("the target must not be one of the features")
        if self.weights is not None and self.weights.name in (*names, self.target.name):
            raise ValueError("weights must be neither a feature nor the target")
        if self.weights is not None and self.weights.lower < 0.0:
            raise ValueError("the lower bound of weights must be 0 or above")
        if "intercept" in names:
            raise ValueError("no feature may be called 'intercept': the constant term is")
        if self.family in ("poisson", "negative_binomial") and self.target.lower != 0.0:
            raise ValueError("a count's lower bound must be 0")
        if self.family == "gamma" and self.target.lower < 0.0:
            raise ValueError("the lower bound of a positive number must be 0 or above")
        if self.family == "normal" and self.offset is not None:
            raise ValueError("a linear model has no offset: subtract it from the target")
        if self.purpose == "prediction" and self.family != "normal":
            raise ValueError('purpose "prediction" is for linear models: leave it out')
        if self.purpose == "prediction" and self.weights is not None:
            raise ValueError('purpose "prediction" has no weights')
        if self.pooled is not None and not self.pooled_columns:
            raise ValueError(f"no feature is a level of {self.pooled!r}, which is to be pooled")
        if self.pooled is not None and self.purpose == "prediction":
            raise ValueError('purpose "prediction" pools nothing: leave `pooled` out')
        return self

    @property
    def codings(self) -> tuple[Coding, ...]:
        own = codings_of_target(self.family, self.target)
        if self.weights is not None and self.weights.term is None:
            own = (*own, Coding(self.weights.name, "weight"))
        return (*super().codings, *own)

    @property
    def predictors(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then the offset if there is one."""
        return self.features if self.offset is None else (*self.features, self.offset)

    @property
    def regressed(self) -> tuple[ColumnBounds, ...]:
        """The predictors, then the target."""
        return (*self.predictors, self.target)

    @property
    def pooled_columns(self) -> tuple[int, ...]:
        """Which features are levels of the pooled variable."""
        return tuple(
            place
            for place, each in enumerate(self.features)
            if each.term is not None
            and (factor := each.term.factors[0]).kind == "level"
            and len(each.term.factors) == 1
            and factor.variable == self.pooled
        )

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The columns of a client's records: those `regressed`, then weights if there are any."""
        return self.regressed if self.weights is None else (*self.regressed, self.weights)

    @property
    def rounds(self) -> int:
        """How many rounds the job has."""
        return len(self.asked())

    @property
    def batch(self) -> int | None:
        """How many clients a round asks; None for all that joined."""
        return None

    def participations(self, population: int) -> int:
        return self.rounds

    def asked(self) -> tuple[QueryName, ...]:
        """Return the query of each round."""
        if self.family != "normal":
            return round_rules.GENERALISED
        return round_rules.LINEAR if self.purpose == "intervals" else round_rules.PREDICTING

    def query_name(self, number: int) -> QueryName:
        return self.asked()[number]

    def query_names(self) -> tuple[QueryName, ...]:
        return tuple(dict.fromkeys(self.asked()))

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        return round_rules.kinds_of_rounds(self)

    def check_query(
        self, query: Query, *, number: int, population: int, earlier: Sequence[ReleasedSum]
    ) -> None:
        round_rules.check_query(query, self, number=number)
