"""The data sets: those that scikit-learn and statsmodels ship, UCI's if at hand, made-up ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes
from statsmodels.datasets import anes96, fair, randhie

from figures.datasets import load_uci
from figures.sources import Files
from shoal_studies.catalogue.regression import TargetFamily

Floats = NDArray[np.float64]

_DISEASE: Final = (
    "mean radius",
    "mean texture",
    "mean smoothness",
    "mean symmetry",
    "mean concavity",
)
VOTERS: Final = ("selfLR", "TVnews", "age", "educ", "income", "logpopul")
_PATIENTS: Final = ("lncoins", "idp", "lpi", "fmde", "physlm", "hlthg", "hlthf", "hlthp")
COUPLES: Final = ("age", "yrs_married", "children", "religious", "educ", "occupation")


@dataclass(frozen=True)
class DataSet:
    """`values`, shape (N, m), the target last; if it `has_offset` that is before it."""

    name: str
    family: TargetFamily
    values: Floats
    has_offset: bool = False

    @property
    def features(self) -> Floats:
        """Features' values, shape (N, q)."""
        return self.values[:, : -2 if self.has_offset else -1]

    @property
    def offsets(self) -> Floats:
        """What is known of predictors, shape (N,)."""
        return self.values[:, -2] if self.has_offset else np.zeros(len(self.values))

    @property
    def middle(self) -> Floats:
        """The mean row, of constant and features, shape (q + 1,)."""
        return np.append(1.0, self.features.mean(axis=0))

    def bounds(self, *, wide: float = 1.1, off: float = 0.0) -> Floats:
        """Return bounds, shape (m, 2): `wide` times the range, off the middle by `off` of it.

        Columns of zeros and ones keep theirs, and so do the targets of counts and classes.
        """
        low, high = self.values.min(axis=0), self.values.max(axis=0)
        middle, half = (low + high) / 2.0 + off * (high - low), wide * (high - low) / 2.0
        found = np.column_stack([middle - half, middle + half])
        binary = np.all(np.isin(self.values, (0.0, 1.0)), axis=0)
        found[binary] = (0.0, 1.0)
        if self.family != "normal":
            found[-1] = (0.0, high[-1])
        return found


def linear(data: Path | None) -> Iterator[DataSet]:
    """Yield data sets with a number as target."""
    diabetes = load_diabetes(scaled=False)
    yield DataSet("diabetes", "normal", np.column_stack([diabetes.data, diabetes.target]))
    if data is not None:
        files = Files(data=data, cache=data)
        for name in ("red_wine", "white_wine", "abalone"):
            yield DataSet(name, "normal", load_uci(name, files, as_authors=False))
    generator = np.random.default_rng(11)
    skewed = generator.lognormal(0.0, 1.0, 10_000)
    flag = generator.binomial(1, 0.1, 10_000)
    noise = (1.0 + skewed) * generator.standard_normal(10_000)
    target = np.minimum(skewed, 8.0) - 2.0 * flag + noise
    yield DataSet("skewed, uneven", "normal", np.column_stack([skewed, flag, target]))
    yield DataSet("anes96, party", "normal", columns_of(anes96, VOTERS, "PID"))
    yield DataSet("fair, happiness", "normal", columns_of(fair, COUPLES, "rate_marriage"))
    yield DataSet("randhie, illnesses", "normal", columns_of(randhie, _PATIENTS, "disea"))


def generalised(data: Path | None) -> Iterator[DataSet]:
    """Yield data sets with a class, a count or a positive number as target."""
    disease = load_breast_cancer(as_frame=True)
    columns = disease.data[list(_DISEASE)].to_numpy()
    yield DataSet("breast cancer", "logistic", np.column_stack([columns, disease.target]))
    if data is not None:
        rows = load_uci("white_wine", Files(data=data, cache=data), as_authors=False)
        kept = rows[:, [1, 3, 4, 7, 8, 10]]
        yield DataSet("good wine", "logistic", np.column_stack([kept, rows[:, -1] >= 7.0]))
    generator = np.random.default_rng(12)
    x, z = generator.standard_normal(20_000), generator.binomial(1, 0.3, 20_000)
    rare = generator.binomial(1, 1.0 / (1.0 + np.exp(4.0 - 1.2 * x - 0.8 * z)))
    yield DataSet("rare, strong", "logistic", np.column_stack([x, z, rare]))
    counts = generator.poisson(np.exp(0.3 + 0.4 * x - 0.5 * z))
    yield DataSet("counts", "poisson", np.column_stack([x, z, counts]).astype(np.float64))
    means = np.exp(2.0 + 0.5 * x - 0.6 * z)
    scattered = generator.negative_binomial(1 / 1.5, 1.0 / (1.0 + 1.5 * means))
    whole = np.column_stack([x, z, scattered]).astype(np.float64)
    yield DataSet("scattered counts", "negative_binomial", whole)
    yield DataSet("anes96, vote", "logistic", columns_of(anes96, VOTERS, "vote"))
    affairs = columns_of(fair, ("rate_marriage", *COUPLES), "affairs")
    affairs[:, -1] = affairs[:, -1] > 0.0
    yield DataSet("fair, affair", "logistic", affairs)
    visits = columns_of(randhie, (*_PATIENTS, "disea"), "mdvis")
    yield DataSet(
        "randhie, any visit", "logistic", np.column_stack([visits[:, :-1], visits[:, -1] > 0.0])
    )
    yield DataSet("randhie, visits", "poisson", visits)
    yield DataSet("randhie, visits", "negative_binomial", visits)
    yield from positive()
    yield births()


def positive() -> Iterator[DataSet]:
    """Yield data sets with a positive number as target."""
    illnesses = columns_of(randhie, _PATIENTS, "disea")
    yield DataSet("randhie, illnesses", "gamma", illnesses[illnesses[:, -1] > 0.0])
    affairs = columns_of(fair, ("rate_marriage", *COUPLES), "affairs")
    yield DataSet("fair, time of affairs", "gamma", affairs[affairs[:, -1] > 0.0])


def births() -> DataSet:
    """Return counts with an exposure: children by years of marriage."""
    counts = columns_of(
        fair, ("rate_marriage", "age", "religious", "educ", "yrs_married"), "children"
    )
    counts[:, -2:] = np.column_stack([np.log(counts[:, -2]), np.ceil(counts[:, -1])])
    return DataSet("fair, children by year", "poisson", counts, has_offset=True)


def columns_of(package: object, features: Sequence[str], target: str) -> Floats:
    """Return columns of a set that statsmodels ships, shape (N, m)."""
    frame = package.load_pandas().data  # type: ignore[attr-defined]
    found: Floats = frame[[*features, target]].to_numpy(dtype=np.float64)
    return found
