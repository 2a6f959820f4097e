"""Whether regressions tell the truth about their slopes, and how far predictions are from rivals'.

    make bench-statistics [DATA=DIR] [QUICK=1]
    python -m bench.regressions [--data DIR] [--sets PREFIX] [--prices 1 3 10] [--repeats 8]
        [--quick] [--warn] [--json FILE]

Every set is fitted at each price by `SimulatedFederation` at delta = 1e-5 with 20 dropouts and 20
colluders, and compared with the exact fit to the same records but those that decide a slope alone
(`without_deciding`). A line of the first table is one set at one price:

- aside: how many records these are;
- held, worst: the share of 90 % intervals of slopes that contain the exact coefficient, and that of
  the slope of which fewest do; then both among fits whose verdict is "trustworthy";
- trust, doubt, prior: the share of each verdict;
- error, sd: root mean square error and posterior standard deviation of the median slope, in
  standard errors of the exact fit, robust to uneven scatter;
- sd/error, sd/all: the standard deviation over the error, and over the error and the standard error
  together, since an interval is about the population that the records are a sample of.

It fails if a line misses the `RULE`, and says at the line's end what it misses; there, too, whether
trusted fits predict worse than the mean, by deviance. Sets are those that scikit-learn and
statsmodels ship, and made-up ones whose columns are hard: an uncentred square, twins with opposed
effects, a rare level times a number, a skewed column whose records far out scatter more. `--data`
adds UCI's wines and abalone (DIR/uci), the rivals' sets (DIR/rivals) and Rotterdam's patients;
without it they are left out, and so is the second table, which compares mean square errors of
predictions with those of AdaSSP and boosted AdaSSP.
"""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import statsmodels.api as sm
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes
from statsmodels.datasets import anes96, fair, randhie

from bench.command import options, write
from figures.ada_ssp import ada_ssp
from figures.datasets import UCI_SETS, load_uci
from figures.sources import Files
from shoal import SimulatedFederation
from shoal.estimators import (
    GammaRegression,
    LinearRegression,
    LogisticRegression,
    NegativeBinomialRegression,
    PoissonRegression,
)

Floats = NDArray[np.float64]

ESTIMATORS: Final = {
    "normal": LinearRegression,
    "logistic": LogisticRegression,
    "poisson": PoissonRegression,
    "negative_binomial": NegativeBinomialRegression,
    "gamma": GammaRegression,
}
LEVEL: Final = 0.9
VERDICTS: Final = ("trustworthy", "doubtful", "prior")
QUICK_PRICES: Final = (3.0,)
HEADING: Final = (
    f"{'set':26}{'family':9}{'n':>6} aside{'ε':>5}   held  worst  (and where trusted)"
    "  trust  doubt  prior  error     sd  sd/er sd/all"
)
RULE: Final = {"held": 0.82, "worst": 0.65, "sd over all": 3.0, "trusted": 0.5, "worse": 0.0}
"""Least coverage of trusted fits and of a slope of theirs, most width, least trust at epsilon 3."""

MOST_MOVED: Final = 0.5
RECORDS_A_DECIDING: Final = 1_000
MOST_RECORDS: Final = 10_000
MOST_FEATURES: Final = 12
RECORDS_A_SLOPE: Final = 200
RIVALS: Final = (
    *("housing", "energy", "concrete", "autompg", "bike"),
    *("parkinsons", "protein", "elevators", "pol"),
)
RIVAL_PRICES: Final = (0.63, 1.585, 4.0)
BOOSTING: Final = {
    "AdaSSP": (1, 1.0),
    "boosted AdaSSP, as published": (100, 1.0),
    "boosted AdaSSP, the best here": (10, 0.5),
}
"""Rounds, and where residuals are cut, in half ranges of the target."""

VOTERS: Final = ("selfLR", "TVnews", "age", "educ", "income", "logpopul")
COUPLES: Final = ("age", "yrs_married", "children", "religious", "educ", "occupation")
_PATIENTS: Final = ("lncoins", "idp", "lpi", "fmde", "physlm", "hlthg", "hlthf", "hlthp")
_DISEASE: Final = ("radius", "texture", "smoothness", "symmetry", "concavity")


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Records of a regression: columns by name with their bounds, the target last.

    `formula` has the terms of the columns, and `terms`, shape (n, m), are their values; without a
    formula each column is a feature. The `offset` is a column. A set that `is_hard` has columns
    that noise cannot tell apart, or records far out that decide slopes.
    """

    name: str
    family: str
    columns: Mapping[str, NDArray[Any]]
    bounds: Mapping[str, tuple[float, float]]
    formula: str | None = None
    terms: Floats | None = None
    offset: str | None = None
    is_hard: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the rule asks that fits be trusted: `RECORDS_A_SLOPE` at least, and not hard."""
        records, slopes = self.features.shape
        return not self.is_hard and records >= RECORDS_A_SLOPE * slopes

    @property
    def target(self) -> NDArray[Any]:
        """The target's values, shape (n,)."""
        return self.columns[self._names[-1]]

    @property
    def features(self) -> Floats:
        """Values of the terms, shape (n, m)."""
        if self.terms is not None:
            return self.terms
        return np.column_stack([self.columns[each] for each in self._names[:-1]])

    @property
    def _names(self) -> list[str]:
        return [each for each in self.columns if each != self.offset]

    def fit(self, **federation: Any) -> Any:
        """Return the fitted estimator; arguments are those of the federation, and a `purpose`."""
        given: dict[str, Any] = {}
        if "purpose" in federation:
            given["purpose"] = federation.pop("purpose")
        if self.formula is not None:
            given |= {"formula": self.formula, "variables": dict(self.bounds)}
        else:
            *features, target = self._names
            given["features"] = {each: self.bounds[each] for each in features}
            given["target"] = {target: self.bounds[target]}
            if self.offset is not None:
                given["offset"] = {self.offset: self.bounds[self.offset]}
        return ESTIMATORS[self.family](**given).fit(SimulatedFederation(self.columns, **federation))


def family_of(each: DataSet) -> Any:
    """Return statsmodels' family; scattered counts have that of Poisson's means."""
    families = {
        "normal": sm.families.Gaussian(),
        "logistic": sm.families.Binomial(),
        "gamma": sm.families.Gamma(sm.families.links.Log()),
    }
    return families.get(each.family, sm.families.Poisson())


def is_worse_than_the_mean(each: DataSet, coefficients: Floats) -> bool:
    """Tell whether deviance is above that of one mean, or one rate, of all records."""
    family, target = family_of(each), each.target
    offset = np.zeros(len(target)) if each.offset is None else each.columns[each.offset]
    predicted = coefficients[0] + each.features @ coefficients[1:] + offset
    rate = target.mean() / np.exp(offset).mean()
    return bool(
        family.deviance(target, family.link.inverse(predicted))
        > family.deviance(target, rate * np.exp(offset))
    )


def exact(each: DataSet) -> tuple[Floats, Floats]:
    """Return the slopes of the exact fit and their robust standard errors, shapes (m,) and (m,)."""
    fitted, spreads = _fitted(each)
    return fitted.params[1:] / spreads, fitted.bse[1:] / spreads


def without_deciding(each: DataSet) -> DataSet:
    """Return the set without records of which a single one moves a slope by half its robust error.

    At most one in `RECORDS_A_DECIDING` is left out, the one of most influence first. Whether such a
    record is there is what privacy hides: no interval can follow it.
    """
    for _ in range(len(each.target) // RECORDS_A_DECIDING):
        fitted, _ = _fitted(each)
        by_record = fitted.get_influence(observed=False).d_params[:, 1:]
        moved = np.abs(by_record / fitted.bse[1:]).max(axis=1)
        if moved.max() <= MOST_MOVED:
            break
        kept = np.arange(len(moved)) != moved.argmax()
        columns = {name: values[kept] for name, values in each.columns.items()}
        terms = None if each.terms is None else each.terms[kept]
        each = replace(each, columns=columns, terms=terms)
    return each


def _fitted(each: DataSet) -> tuple[Any, Floats]:
    """Return statsmodels' fit to features in spreads, and these spreads, shape (m,).

    Of scattered counts it is the fit of greatest likelihood over slopes and dispersion.
    """
    spreads = each.features.std(axis=0)
    rows = sm.add_constant(each.features / spreads, has_constant="add")
    offset = None if each.offset is None else each.columns[each.offset]
    family = family_of(each)
    with np.errstate(divide="ignore", invalid="ignore"):  # where classes are apart
        fitted = sm.GLM(each.target, rows, family=family, offset=offset).fit(cov_type="HC0")
    if each.family == "negative_binomial":
        start = np.append(fitted.params, 1.0)
        whole = sm.NegativeBinomial(each.target, rows, offset=offset)
        whole = whole.fit(start_params=start, method="bfgs", maxiter=1000, disp=0)
        family = sm.families.NegativeBinomial(alpha=whole.params[-1])
        fitted = sm.GLM(each.target, rows, family=family, offset=offset).fit(cov_type="HC0")
    return fitted, spreads


def line(each: DataSet, epsilon: float, repeats: int) -> dict[str, Any] | None:
    """Fit a set so many times at one price; return its line of the first table.

    It is None if no finite slopes are best, since classes are apart.
    """
    slopes, errors = exact(each)
    if not np.all(np.isfinite(errors)):
        return None
    others = without_deciding(each)
    if others is not each:
        slopes, errors = exact(others)
    means, ends, verdicts, worse = [], [], [], []
    for seed in range(repeats):
        model = each.fit(epsilon=epsilon, delta=1e-5, dropouts=20, colluders=20, seed=seed)
        posterior = model.posterior_
        means.append(posterior.mean[posterior.slopes])
        ends.append(posterior.interval(LEVEL)[posterior.slopes])
        verdicts.append(posterior.verdict.kind)
        worse.append(
            verdicts[-1] == "trustworthy" and is_worse_than_the_mean(others, posterior.mean)
        )
    return {
        "set": each.name,
        "family": each.family,
        "records": len(each.target),
        "set aside": len(each.target) - len(others.target),
        "slopes": len(slopes),
        "epsilon": epsilon,
        "is plain": each.is_plain,
        "worse": float(np.mean(worse)),
        **figures(slopes, errors, np.array(means), np.array(ends), np.array(verdicts)),
    }


def figures(
    slopes: Floats, errors: Floats, means: Floats, ends: Floats, verdicts: NDArray[np.str_]
) -> dict[str, float | None]:
    """Return the figures of k fits.

    `slopes` and their standard `errors` are the exact fit's, shape (m,); `means`, shape (k, m),
    and the intervals' `ends`, shape (k, m, 2), the posteriors'; `verdicts` their kinds.
    """
    held = (ends[..., 0] <= slopes) & (slopes <= ends[..., 1])
    trusted = held[verdicts == "trustworthy"]
    off = np.sqrt(np.mean((means - slopes) ** 2, axis=0))
    sd = np.mean(ends[..., 1] - ends[..., 0], axis=0) / (2.0 * 1.6449)
    return {
        "held": float(held.mean()),
        "worst": float(held.mean(axis=0).min()),
        "held where trusted": float(trusted.mean()) if len(trusted) else None,
        "worst where trusted": float(trusted.mean(axis=0).min()) if len(trusted) else None,
        **{kind: float(np.mean(verdicts == kind)) for kind in ("trustworthy", "doubtful", "prior")},
        "error": float(np.median(off / errors)),
        "sd": float(np.median(sd / errors)),
        "sd over error": float(np.median(sd / off)),
        "sd over all": float(np.median(sd / np.hypot(off, errors))),
    }


def misses(row: Mapping[str, Any]) -> list[str]:
    """Return what of the `RULE` a line misses."""
    held, worst = row["held where trusted"], row["worst where trusted"]
    missed = []
    if held is not None and held < RULE["held"]:
        missed.append("held")
    if worst is not None and worst < RULE["worst"]:
        missed.append("worst")
    if row["sd over all"] > RULE["sd over all"]:
        missed.append("too wide")
    if row["worse"] > RULE["worse"]:
        missed.append("worse than the mean")
    if row["is plain"] and row["epsilon"] >= 3.0 and row["trustworthy"] < RULE["trusted"]:
        missed.append("not trusted")
    return missed


def against_rivals(name: str, rows: Floats, epsilon: float, repeats: int) -> dict[str, Any]:
    """Return mean square errors on `rows`, shape (n, m + 1), at delta = 1 / n^2 without dropouts.

    Bounds are each column's least and largest value, for everybody.
    """
    features, target = rows[:, :-1], rows[:, -1]
    bounds, price = _range(rows), {"epsilon": epsilon, "delta": len(rows) ** -2.0}

    def error(predicted: Floats) -> float:
        return float(np.mean((target - predicted) ** 2))

    design = np.column_stack([np.ones(len(rows)), features])
    best = np.linalg.lstsq(design, target, rcond=None)[0]
    found: dict[str, list[float]] = {}
    for seed in range(repeats):
        generator = np.random.default_rng(seed)
        for rival, (rounds, cut) in BOOSTING.items():
            point = ada_ssp(rows, bounds, generator, **price, absent=0, rounds=rounds, cut=cut)
            found.setdefault(rival, []).append(error(design @ point))
        each = columns_of(name, "normal", rows, bounds=bounds)
        for purpose in ("intervals", "prediction"):
            model = each.fit(purpose=purpose, **price, dropouts=0, colluders=0, seed=seed)
            predicted = design @ np.append(model.intercept_, model.coef_)
            found.setdefault(f"ours, {purpose}", []).append(error(predicted))
    means = {rival: float(np.mean(errors)) for rival, errors in found.items()}
    return {"set": name, "epsilon": epsilon, "exact fit": error(design @ best), **means}


def columns_of(
    name: str,
    family: str,
    rows: Floats,
    *,
    bounds: Floats | None = None,
    offset: Floats | None = None,
) -> DataSet:
    """Return a set whose features, and target, are the columns of `rows`, shape (n, m + 1).

    Without `bounds` they are a tenth wider than the range; columns of zeros and ones keep theirs.
    At most `MOST_RECORDS` records count, drawn at random.
    """
    if offset is not None:
        rows = np.column_stack([offset, rows])
    chosen = np.random.default_rng(1).permutation(len(rows))[:MOST_RECORDS]
    rows = rows[chosen] if bounds is None else rows
    if bounds is None:
        bounds = _range(rows)
        is_binary = np.all(np.isin(rows, (0.0, 1.0)), axis=0)
        wider = 0.05 * np.ptp(bounds, axis=1) * ~is_binary
        bounds = bounds + np.column_stack([-wider, wider])
        if family != "normal":
            bounds[-1] = (0.0, rows[:, -1].max())
    first = ["offset"] if offset is not None else []
    names = [*first, *(f"x{place}" for place in range(rows.shape[1] - 1 - len(first))), "y"]
    return DataSet(
        name=name,
        family=family,
        columns=dict(zip(names, rows.T, strict=True)),
        bounds={
            each: (float(low), float(high))
            for each, (low, high) in zip(names, bounds.tolist(), strict=True)
        },
        offset="offset" if offset is not None else None,
    )


def _range(rows: Floats) -> Floats:
    return np.column_stack([rows.min(axis=0), rows.max(axis=0)])


def shipped() -> Iterator[DataSet]:
    """Yield sets that scikit-learn and statsmodels ship."""
    diabetes = load_diabetes(scaled=False)
    yield columns_of("diabetes", "normal", np.column_stack([diabetes.data, diabetes.target]))
    disease = load_breast_cancer(as_frame=True)
    columns = disease.data[[f"mean {each}" for each in _DISEASE]].to_numpy()
    yield columns_of("breast cancer", "logistic", np.column_stack([columns, disease.target]))
    yield columns_of("anes96, party", "normal", table_of(anes96, *VOTERS, "PID"))
    yield columns_of("anes96, vote", "logistic", table_of(anes96, *VOTERS, "vote"))
    yield columns_of("fair, happiness", "normal", table_of(fair, *COUPLES, "rate_marriage"))
    affairs = table_of(fair, "rate_marriage", *COUPLES, "affairs")
    happened = affairs[:, -1] > 0.0
    yield columns_of("fair, affair", "logistic", _with(affairs, happened))
    yield columns_of("fair, time of affairs", "gamma", affairs[happened])
    yield births()
    visits = table_of(randhie, *_PATIENTS, "disea", "mdvis")
    yield columns_of("randhie, any visit", "logistic", _with(visits, visits[:, -1] > 0.0))
    yield columns_of("randhie, visits", "poisson", visits)
    yield columns_of("randhie, visits", "negative_binomial", visits)
    illnesses = visits[visits[:, -2] > 0.0, :-1]
    yield columns_of("randhie, illnesses", "gamma", illnesses)


def births() -> DataSet:
    """Return counts with an exposure: children by years of marriage."""
    rows = table_of(fair, "yrs_married", "rate_marriage", "age", "religious", "educ", "children")
    features = _with(rows, np.ceil(rows[:, -1]))[:, 1:]
    return columns_of("fair, children by year", "poisson", features, offset=np.log(rows[:, 0]))


def table_of(package: object, *columns: str) -> Floats:
    """Return columns of a set that statsmodels ships, shape (n, m)."""
    frame = package.load_pandas().data  # type: ignore[attr-defined]
    return np.asarray(frame[list(columns)].to_numpy(dtype=np.float64))


def _with(rows: Floats, target: NDArray[Any]) -> Floats:
    """Return rows, shape (n, m), with another target."""
    return np.column_stack([rows[:, :-1], target]).astype(np.float64)


def made_up() -> Iterator[DataSet]:
    """Yield made-up sets: some plain ones, then some whose columns are hard to tell apart."""
    generator = np.random.default_rng(12)
    x, z = generator.standard_normal(5000).clip(-4.0, 4.0), generator.binomial(1, 0.3, 5000)
    rare = generator.binomial(1, 1.0 / (1.0 + np.exp(4.0 - 1.2 * x - 0.8 * z)))
    yield columns_of("rare, strong", "logistic", np.column_stack([x, z, rare]))
    counts = generator.poisson(np.exp(0.5 + 0.8 * x))
    yield columns_of("counts", "poisson", np.column_stack([x, counts]))
    means = np.exp(2.0 + 0.5 * x - 0.6 * z)
    scattered = generator.negative_binomial(1 / 1.5, 1.0 / (1.0 + 1.5 * means))
    yield columns_of("scattered counts", "negative_binomial", np.column_stack([x, z, scattered]))
    skewed = generator.lognormal(0.0, 1.0, 5000)
    uneven = np.minimum(skewed, 8.0) + (1.0 + skewed) * generator.standard_normal(5000)
    rows = np.column_stack([skewed, z, uneven])
    yield replace(columns_of("skewed, uneven", "normal", rows), is_hard=True)
    yield from _squares(generator)
    twin = 0.97 * x + np.sqrt(1.0 - 0.97**2) * generator.standard_normal(5000)
    opposed = np.column_stack([x, twin])
    target = x - twin + generator.standard_normal(5000)
    twins = columns_of("twins", "normal", np.column_stack([opposed, target]))
    yield replace(twins, is_hard=True)
    chance = 1.0 / (1.0 + np.exp(-1.5 * (x - twin)))
    target = generator.binomial(1, chance)
    twins = columns_of("twins", "logistic", np.column_stack([opposed, target]))
    yield replace(twins, is_hard=True)
    level, age = generator.binomial(1, 0.03, 5000), generator.uniform(20.0, 70.0, 5000)
    chance = 1.0 / (1.0 + np.exp(2.0 - 0.03 * age - level * (1.5 - 0.04 * age)))
    yield DataSet(
        name="rare level times a number",
        family="logistic",
        columns={"level": level, "age": age, "y": generator.binomial(1, chance)},
        bounds={"level": (0.0, 1.0), "age": (18.0, 90.0), "y": (0.0, 1.0)},
        formula="y ~ level * age",
        terms=np.column_stack([level, age, level * age]),
        is_hard=True,
    )


def _squares(generator: np.random.Generator) -> Iterator[DataSet]:
    age = generator.uniform(18.0, 80.0, 5000)
    chance = 1.0 / (1.0 + np.exp(8.0 - 0.3 * age + 0.003 * age**2))
    counts = generator.poisson(np.exp(-1.0 + 0.06 * age - 0.0006 * age**2))
    costs = generator.gamma(2.0, np.exp(1.0 + 0.08 * age - 0.0008 * age**2) / 2.0)
    for family, target, most in (
        ("logistic", generator.binomial(1, chance), 1.0),
        ("poisson", counts, 12.0),
        ("gamma", costs, 200.0),
    ):
        yield DataSet(
            name="uncentred square",
            family=family,
            columns={"age": age, "y": target},
            bounds={"age": (18.0, 90.0), "y": (0.0, most)},
            formula="y ~ age + I(age**2)",
            terms=np.column_stack([age, age**2]),
            is_hard=True,
        )


def from_files(data: Path) -> Iterator[DataSet]:
    """Yield sets of a directory, with a class, a count and a positive number made of each target.

    Raises:
        DataUnavailable: one of UCI's files is neither there nor to be had.
    """
    files = Files(data=data, cache=data)
    tables = {name: load_uci(name, files, as_authors=False) for name in UCI_SETS}
    tables |= {name: _rows(data, name) for name in RIVALS}
    for name, table in tables.items():
        rows = np.column_stack([_told_apart(table[:, :-1]), table[:, -1]])
        low, high = rows[:, -1].min(), rows[:, -1].max()
        share = (rows[:, -1] - low) / (high - low)
        yield columns_of(name, "normal", rows)
        yield columns_of(name, "logistic", _with(rows, share > np.median(share)))
        yield columns_of(name, "poisson", _with(rows, np.rint(10.0 * share)))
        yield columns_of(name, "gamma", _with(rows, 0.05 + share))
    patients = _rows(data, "rotterdam")
    features, years, died = patients[:, :-2], patients[:, -2] / 365.25, patients[:, -1]
    yield columns_of("rotterdam, event", "logistic", np.column_stack([features, died]))
    yield columns_of("rotterdam, years", "gamma", np.column_stack([features, years]))
    events = np.column_stack([features, died])
    yield columns_of("rotterdam, events by year", "poisson", events, offset=np.log(years))


def _told_apart(features: Floats) -> Floats:
    """Return the first `MOST_FEATURES` columns with a tenth of their variance beside the others.

    Some of the rivals' columns are sums of others, and no exact fit has slopes of these.
    """
    kept = np.zeros((len(features), 0))
    for column in features.T:
        constant = np.column_stack([np.ones(len(features)), kept])
        left = column - constant @ np.linalg.lstsq(constant, column, rcond=None)[0]
        if kept.shape[1] < MOST_FEATURES and left.var() >= 0.1 * column.var():
            kept = np.column_stack([kept, column])
    return kept


def _rows(data: Path, name: str) -> Floats:
    return np.loadtxt(data / "rivals" / f"{name}.csv", delimiter=",", skiprows=1)


def shown(row: Mapping[str, Any]) -> str:
    """Return a line of the first table."""
    names = ("held", "worst", "held where trusted", "worst where trusted")
    shares = (*VERDICTS, "error", "sd", "sd over error", "sd over all")
    numbers = "".join(
        f"{'-':>7}" if row[each] is None else f"{row[each]:7.2f}" for each in (*names, *shares)
    )
    where = f"{row['set']:26}{row['family'][:8]:9}"
    where += f"{row['records']:6}{row['set aside']:6}{row['epsilon']:5g}"
    return where + numbers + "  " + ", ".join(misses(row))


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each price and kind of set: means of shares, medians of errors."""
    for plain, epsilon in itertools.product((True, False), sorted({r["epsilon"] for r in rows})):
        some = [row for row in rows if (row["is plain"], row["epsilon"]) == (plain, epsilon)]
        if not some:
            continue
        trusted = [row for row in some if row["trustworthy"] > 0.0]
        held = sum(row["trustworthy"] * row["held where trusted"] for row in trusted)
        fits = sum(row["trustworthy"] for row in trusted)
        shares = {name: np.mean([row[name] for row in some]) for name in ("held", *VERDICTS)}
        shares["held where trusted"] = held / fits if fits else np.nan
        middle = {name: np.median([row[name] for row in some]) for name in ("error", "sd over all")}
        keep = sum(not misses(row) for row in some)
        shown_figures = [f"{name} {figure:.2f}" for name, figure in (shares | middle).items()]
        kind = "plain" if plain else "other"
        kept = f"{kind}, ε = {epsilon:g}: {keep} of {len(some)} keep the rule"
        yield ", ".join([kept, *shown_figures])


def _of_rivals(row: Mapping[str, Any]) -> str:
    errors = [f"{name} {error:.4g}" for name, error in row.items() if name != "set"]
    return ", ".join([row["set"], *errors])


def main() -> None:
    """Measure and print both tables, and fail if a line misses the rule."""
    asked = options(
        __doc__,
        data=Path,
        sets=str,
        prices=[1.0, 3.0, 10.0],
        repeats=8,
        quick=False,
        warn=False,
        json=Path,
    )
    rows, rivals = [], []
    print(HEADING)
    for each in (*shipped(), *made_up(), *(from_files(asked.data) if asked.data else ())):
        if asked.sets and not each.name.startswith(asked.sets):
            continue
        for epsilon in QUICK_PRICES if asked.quick else asked.prices:
            row = line(each, epsilon, asked.repeats)
            if row is not None:
                rows.append(row)
                print(shown(row), flush=True)
    print("\n".join(summary(rows)))
    if asked.data is None:
        print("without --data UCI's and the rivals' sets are left out")
    else:
        for name, epsilon in itertools.product(RIVALS, RIVAL_PRICES):
            if not asked.sets or name.startswith(asked.sets):
                rivals.append(against_rivals(name, _rows(asked.data, name), epsilon, asked.repeats))
                print(_of_rivals(rivals[-1]), flush=True)
    write({"slopes": rows, "rivals": rivals}, asked.json)
    if any(map(misses, rows)) and not asked.warn:
        sys.exit("intervals or verdicts of regressions miss the rule")


if __name__ == "__main__":
    main()
