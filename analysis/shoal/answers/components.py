"""Principal components of correlations that are seen through noise, with simulated intervals."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.posteriors.base import LEVEL, normal_intervals, require_level
from shoal_protocol.posteriors.summaries import Summary
from shoal_protocol.studies.regression import Verdict

Floats = NDArray[np.float64]

ANYWHERE: Final = (-math.inf, math.inf)


@dataclass(frozen=True)
class Estimates:
    """Numbers `names` with `mean` and `sd`, shapes (k,), normal and within `limits`.

    `caution` is to be read first, if there is one.
    """

    title: str
    names: tuple[str, ...]
    mean: Floats
    sd: Floats
    limits: tuple[float, float] = ANYWHERE
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
        ends = (f"quantile {0.5 - level / 2.0:.4g}", f"quantile {0.5 + level / 2.0:.4g}")
        facts = () if self.caution is None else (("Caution", self.caution),)
        return Summary(self.title, ("", "mean", "sd", *ends), rows, facts)

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def chi_square_tail(statistic: float, degrees: int) -> float:
    """Return the probability that a chi-square of so many degrees of freedom is larger.

    By the finite sums of Abramowitz and Stegun, 26.4.4 and 26.4.5.
    """
    half = max(statistic, 0.0) / 2.0
    if half == 0.0:
        return 1.0
    first = 0.5 if degrees % 2 else 0.0
    powers = first + np.arange(degrees // 2)
    terms = [each * math.log(half) - half - math.lgamma(each + 1.0) for each in powers.tolist()]
    tail = math.erfc(math.sqrt(half)) if degrees % 2 else 0.0
    return min(tail + math.fsum(map(math.exp, terms)), 1.0)


_ROUNDS: Final = 15  # of bringing simulated eigenvalues to those seen
_LEAST: Final = 1e-3
_UNSURE: Final = 0.5  # of what is taken off for bias
_APART: Final = 2.0  # standard deviations of noise between eigenvalues that are told apart


@dataclass(frozen=True)
class Blur:
    """How a matrix of correlations, shape (m, m), was seen.

    With noise of sd `products`, shape (m, m), between columns, relative noise of `variances`, shape
    (m,), in their variances, and the sampling of `records` normal records, in effect. Rows that
    were shrunk lost a share `lost` of their squares.
    """

    products: Floats
    variances: Floats
    records: float
    lost: float

    def simulated(
        self,
        truth: Floats,
        draws: int,
        generator: np.random.Generator,  # noqa: TID251 - no privacy depends on it
    ) -> Floats:
        """Return what might have been seen of `truth`, shape (draws, m, m)."""
        values, vectors = np.linalg.eigh(truth)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        shape = (draws, *truth.shape)
        raw = generator.standard_normal(shape) / np.sqrt(2.0 * self.records)
        found = truth + root @ (raw + np.swapaxes(raw, 1, 2)) @ root.T
        noise = np.triu(generator.standard_normal(shape), 1) * self.products
        found += noise + np.swapaxes(noise, 1, 2)
        diagonal = np.arange(len(truth))
        scale = np.sqrt(found[:, diagonal, diagonal])
        relative = np.sqrt(np.log1p(self.variances**2))  # above 0, whatever the noise
        scale = scale * np.exp(0.5 * relative * generator.standard_normal(shape[:2]))
        found = found / (scale[:, :, None] * scale[:, None, :])
        found[:, diagonal, diagonal] = 1.0
        return np.asarray(found)


@dataclass(frozen=True)
class PrincipalComponents:
    """Components of the correlations of `columns`, the largest first.

    `shares`, shape (k,), are what each explains of all variance, and `loadings`, shape (m, k), the
    columns' parts in each, of length 1. Bias by noise is taken off both. Components are a group
    where noise may have made the differences of what they explain: their shares' intervals reach to
    `group_shares`, the mean of each one's group, shape (k,), and their loadings are shown as `any`.
    `verdict` says which these are.
    """

    columns: tuple[str, ...]
    shares: Floats
    loadings: Floats
    group_shares: Floats
    is_apart: NDArray[np.bool_]
    verdict: Verdict
    _share_errors: Floats  # (draws, k), and those of loadings (draws, m, k)
    _loading_errors: Floats

    @property
    def loading_sd(self) -> Floats:
        """Standard deviations of the loadings, shape (m, k)."""
        return np.asarray(self._loading_errors.std(axis=0))

    def share_interval(self, level: float = LEVEL) -> Floats:
        """Return intervals that hold `level` of each share, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        low, high = _about(self.shares, self._share_errors, level).T
        ends = [np.minimum(low, self.group_shares), np.maximum(high, self.group_shares)]
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

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def components_of(
    columns: tuple[str, ...],
    seen: Floats,
    blur: Blur,
    *,
    count: int,
    draws: int,
    generator: np.random.Generator,  # noqa: TID251 - no privacy depends on it
) -> PrincipalComponents:
    """Return the first `count` components of correlations `seen`, shape (m, m), through a blur.

    Noise spreads eigenvalues. So those are sought of which as much would be seen as was, on
    average; what is seen of them in single simulations tells how far off it all may be.
    """
    size = len(columns)
    values, vectors = (each[..., ::-1] for each in np.linalg.eigh(seen))
    vectors = vectors * np.where(vectors.sum(axis=0) < 0.0, -1.0, 1.0)
    sought = np.maximum(values, _LEAST)
    for _ in range(_ROUNDS):
        truth = _correlations(vectors, sought)
        found = np.linalg.eigvalsh(blur.simulated(truth, draws // 4 + 1, generator))[:, ::-1]
        sought = np.sort(np.maximum(sought + values - np.median(found, axis=0), _LEAST))[::-1]
    truth = _correlations(vectors, sought)
    exact, axes = (each[..., ::-1] for each in np.linalg.eigh(truth))
    axes = (axes * np.where(np.sum(axes * vectors, axis=0) < 0.0, -1.0, 1.0))[:, :count]
    found, seen_axes = np.linalg.eigh(blur.simulated(truth, draws, generator))
    seen_axes = seen_axes[:, :, ::-1][:, :, :count]
    seen_axes = seen_axes * np.where(np.sum(seen_axes * axes, axis=1) < 0.0, -1.0, 1.0)[:, None]
    errors = (found[:, ::-1] - exact) / size
    shares = exact / size
    unsure = np.hypot(_UNSURE * (shares - values / size), blur.lost * shares)
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
        _share_errors=errors[:, :count],
        _loading_errors=seen_axes - axes,
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


def _about(centre: Floats, errors: Floats, level: float) -> Floats:
    """Return intervals about a centre from simulated errors, the draws along their first axis."""
    require_level(level)
    low, high = np.quantile(errors, [0.5 - level / 2.0, 0.5 + level / 2.0], axis=0)
    return np.stack([centre - high, centre - low], axis=-1)
