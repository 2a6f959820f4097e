"""Principal components of correlations that are seen through noise, with simulated intervals."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal.answers.estimates import Floats
from shoal_protocol.posteriors.base import LEVEL
from shoal_protocol.posteriors.intervals import require_level
from shoal_protocol.posteriors.summaries import Summary

_ROUNDS: Final = 15  # of bringing simulated eigenvalues to those seen
_LEAST: Final = 1e-3
_UNSURE: Final = 0.5  # of what is taken off for bias


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
        found[:, diagonal, diagonal] += self.variances * generator.standard_normal(shape[:2])
        scale = np.sqrt(np.maximum(found[:, diagonal, diagonal], 0.05))
        found = found / (scale[:, :, None] * scale[:, None, :])
        found[:, diagonal, diagonal] = 1.0
        return np.asarray(found)


@dataclass(frozen=True)
class PrincipalComponents:
    """Components of the correlations of `columns`, the largest first.

    `shares`, shape (k,), are what each explains of all variance, and `loadings`, shape (m, k), the
    columns' parts in each, of length 1. Bias by noise is taken off both. Where two components
    explain about as much, nobody can tell their loadings apart, and intervals are wide.
    """

    columns: tuple[str, ...]
    shares: Floats
    loadings: Floats
    _share_errors: Floats  # (draws, k), and those of loadings (draws, m, k)
    _loading_errors: Floats

    @property
    def share_sd(self) -> Floats:
        """Standard deviations of the shares, shape (k,)."""
        return np.asarray(self._share_errors.std(axis=0))

    @property
    def loading_sd(self) -> Floats:
        """Standard deviations of the loadings, shape (m, k)."""
        return np.asarray(self._loading_errors.std(axis=0))

    def share_interval(self, level: float = LEVEL) -> Floats:
        """Return central intervals that hold `level` of each share, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        return np.clip(_about(self.shares, self._share_errors, level), 0.0, 1.0)

    def loading_interval(self, level: float = LEVEL) -> Floats:
        """Return central intervals that hold `level` of each loading, shape (m, k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        return np.clip(_about(self.loadings, self._loading_errors, level), -1.0, 1.0)

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
            found = (f"{each:.2f} ± {sd:.2f}" for each, sd in zip(row, sds, strict=True))
            rows.append((name, *found))
        numbers = tuple(str(each + 1) for each in range(len(self.shares)))
        return Summary("Principal components", ("", *numbers), tuple(rows), ())

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
        sought = np.sort(np.maximum(sought + values - found.mean(axis=0), _LEAST))[::-1]
    truth = _correlations(vectors, sought)
    exact, axes = (each[..., ::-1] for each in np.linalg.eigh(truth))
    axes = (axes * np.where(np.sum(axes * vectors, axis=0) < 0.0, -1.0, 1.0))[:, :count]
    found, seen_axes = np.linalg.eigh(blur.simulated(truth, draws, generator))
    seen_axes = seen_axes[:, :, ::-1][:, :, :count]
    seen_axes = seen_axes * np.where(np.sum(seen_axes * axes, axis=1) < 0.0, -1.0, 1.0)[:, None]
    errors = (found[:, ::-1] - exact)[:, :count] / size
    shares = exact[:count] / size
    unsure = np.hypot(_UNSURE * (shares - values[:count] / size), blur.lost * shares)
    errors = errors - errors.mean(axis=0) + unsure * generator.standard_normal(errors.shape)
    return PrincipalComponents(
        columns=columns,
        shares=shares,
        loadings=axes,
        _share_errors=errors,
        _loading_errors=seen_axes - axes,
    )


def _correlations(vectors: Floats, values: Floats) -> Floats:
    matrix = (vectors * values) @ vectors.T
    scale = np.sqrt(np.diagonal(matrix))
    return np.asarray(matrix / np.outer(scale, scale))


def _about(centre: Floats, errors: Floats, level: float) -> Floats:
    """Return intervals about a centre from simulated errors, the draws along their first axis."""
    require_level(level)
    low, high = np.quantile(errors, [0.5 - level / 2.0, 0.5 + level / 2.0], axis=0)
    return np.stack([centre - high, centre - low], axis=-1)
