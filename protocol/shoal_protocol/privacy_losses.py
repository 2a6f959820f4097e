"""Privacy losses of many rounds: discretised, summed by Fourier transforms, errors added.

It knows two mixtures of normal distributions and what telling them apart many times reveals as
delta(epsilon); it knows no noise, round or price. What it reports is never below the truth, but
for the rounding of single masses (relative, below 1e-8).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_REACH: Final = 12.0  # standard deviations, and what of a normal distribution lies beyond
_BEYOND: Final = 4e-33
_STEPS_PER_DEVIATION: Final = 40  # of one round's loss
_MOST_CELLS: Final = 2**17  # of one round's loss: coarser steps are dearer, never wrong
_MOST_SUMMED: Final = 2**22  # of many rounds' losses
_MOST_KNOTS: Final = 2**14
_COARSE: Final = 0.01  # standard deviations
_COARSE_CELLS: Final = 10  # at most so many in one cell of the quadrature
_LARGEST_EXPONENT: Final = 600.0  # e^600 and e^-600 are doubles
_ROUNDING: Final = 2.0**-53
_TILTS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the one that leads to
_FURTHEST_LEVEL: Final = 1e-21
_WINDOW_LEVEL: Final = 1e-60


@dataclass(frozen=True)
class PrivacyLosses:
    """A distribution of privacy losses k `step`, k from -n to n: a pair no harder to tell apart.

    `masses` has shape (2 n + 1,) and is what the first of the pair gives them; the second gives
    e^-(k step) of that. The mass that is missing is at infinity.
    """

    step: float
    masses: Array

    @classmethod
    def of_mirrored_mixtures(cls, *, rate: float, reach: float) -> Self:
        """Return those of (1-q) N(0,1) + q N(reach,1) against its mirror image.

        The mass at a loss between two steps goes to both, such that both distributions keep theirs:
        by convexity no delta falls (Doroshenko et al. 2022, arXiv:2207.04380).
        """
        furthest = reach + _REACH
        coarse = np.linspace(-furthest, furthest, 1 + 2 * math.ceil(furthest / _COARSE))
        loss, mass = _loss(coarse, rate, reach), _density(coarse, rate, reach)
        deviation = math.sqrt(float(np.sum(mass * loss**2) / np.sum(mass)))
        step = max(deviation / _STEPS_PER_DEVIATION, 2.0 * float(loss[-1]) / _MOST_CELLS)
        cells = math.ceil(float(loss[-1]) / step)
        # Gauss's rule between all places where the loss is a whole step, and closer.
        steps = _place(step * np.arange(-cells, cells + 1, dtype=np.float64), rate, reach)
        edges = np.union1d(np.clip(steps, -furthest, furthest), coarse[::_COARSE_CELLS])
        nodes, weights = np.polynomial.legendre.leggauss(6)
        half = 0.5 * np.diff(edges)
        places = (edges[:-1] + half)[:, None] + half[:, None] * nodes
        mass = half[:, None] * weights * _density(places, rate, reach)
        loss = _loss(places, rate, reach)
        below = np.clip(np.floor(loss / step), -cells, cells - 1)
        up = mass * np.expm1(below * step - loss) / math.expm1(-step)
        index = below.astype(np.int64).ravel() + cells
        size = 2 * cells + 1
        kept = np.bincount(index, (mass - up).ravel(), size)
        raised = np.bincount(index + 1, up.ravel(), size)
        return cls(step, np.asarray(kept + raised, dtype=np.float64))

    @cached_property
    def _losses(self) -> Array:
        """Return the losses, shape (2 n + 1,)."""
        cells = len(self.masses) // 2
        return self.step * np.arange(-cells, cells + 1, dtype=np.float64)

    def _moments(self, tilt: float) -> tuple[float, float]:
        """Return ln E e^(tilt loss) and its derivative."""
        exponents = tilt * self._losses
        largest = float(np.max(exponents))
        weighted = self.masses * np.exp(exponents - largest)
        total = float(np.sum(weighted))
        return math.log(total) + largest, float(np.sum(weighted * self._losses)) / total

    def _tilt_to(self, level: float, rounds: int) -> float:
        """Return a tilt at which Chernoff's bound is about `level`: of what sum, `_moments` say."""
        low, high = 0.0, 1.0

        def bound(tilt: float) -> float:
            logarithm, mean = self._moments(tilt)
            return rounds * (logarithm - tilt * mean)

        while bound(high) > math.log(level) and high * self.step < 1.0:
            low, high = high, 2.0 * high
        for _ in range(20):
            middle = 0.5 * (low + high)
            if bound(middle) > math.log(level):
                low = middle
            else:
                high = middle
        return high

    def composed(self, rounds: int, *, knots_per_deviation: int) -> tuple[Array, Array]:
        """Return epsilons from 0 on, and of each an upper bound of delta for so many rounds.

        Both have shape (k,). Errors are relative to what Chernoff's bound says at a tilt, so
        several are tried, and the smallest bound counts.

        Raises:
            ValueError: the losses are too large.
        """
        far = self._tilt_to(_WINDOW_LEVEL, rounds)
        logarithm, mean = self._moments(far)
        window = min(rounds * mean, rounds * float(self._losses[-1]))
        inside = math.ceil(window / self.step)
        size = 1 << math.ceil(math.log2(2.0 * inside + 2.0))
        steepest = self._tilt_to(_FURTHEST_LEVEL, rounds)
        if max(1.0, steepest) * window > _LARGEST_EXPONENT or size > _MOST_SUMMED:
            raise ValueError("these losses are too large to be summed")
        deviation = math.sqrt(rounds * float(np.sum(self.masses * self._losses**2)))
        stride = max(1, int(deviation / knots_per_deviation / self.step), inside // _MOST_KNOTS)
        found = []
        for tilt in (steepest * part for part in _TILTS):
            # What is lost above and wraps round on either side, by Chernoff's bound as tilted.
            moment = rounds * self._moments(tilt)[0]
            outside = 3.0 * math.exp(rounds * logarithm - moment - (far - tilt) * window)
            found.append(self._tilted(rounds, tilt, size, inside, outside)[::stride])
        epsilons = self.step * stride * np.arange(len(found[0]), dtype=np.float64)
        return epsilons, np.min(found, axis=0) + rounds * _BEYOND

    def _tilted(self, rounds: int, tilt: float, size: int, inside: int, outside: float) -> Array:
        """Return bounds of delta at 0, step, 2 step, ..., shape (`inside` + 1,).

        `outside` bounds what error comes of the tilted sum's mass beyond them, on either side.
        """
        logarithm, _ = self._moments(tilt)
        tilted = self.masses * np.exp(tilt * self._losses - logarithm)
        places = np.arange(len(tilted)) - len(tilted) // 2
        wave = np.fft.rfft(np.bincount(places % size, tilted, size))
        power = np.abs(wave) ** rounds * np.exp(1j * (rounds * np.angle(wave)))
        sums = np.fft.irfft(power, size)[: inside + 1]
        # Higham (2002, Theorem 24.2) for either transform, and as much for the power.
        transform = 8.0 * _ROUNDING * math.log2(size)
        rounded = 2.0 * (rounds + 1.0) * transform
        rounded *= float(np.linalg.norm(tilted) + 2.0 * np.linalg.norm(power) / math.sqrt(size))
        decay = 2.0 * tilt * self.step
        rounded *= math.sqrt(min(size, -1.0 / math.expm1(-decay) if decay > 0.0 else math.inf))
        # delta = sum over larger losses of mass (1 - e^(epsilon - loss))
        epsilons = self.step * np.arange(inside + 1)
        weighted = sums * np.exp(-tilt * epsilons)
        delta = _from_above(weighted)
        delta -= np.exp(epsilons) * _from_above(weighted * np.exp(-epsilons))
        delta += 4.0 * size * _ROUNDING * _from_above(np.abs(weighted))
        delta += (rounded + outside) * np.exp(-tilt * epsilons)
        delta *= math.exp(rounds * logarithm)
        return delta


def _from_above(values: Array) -> Array:
    sums: Array = np.cumsum(values[::-1])[::-1]
    return sums


def _density(x: Array, rate: float, reach: float) -> Array:
    """Return the density of (1-q) N(0,1) + q N(reach,1)."""
    mixed: Array = (1.0 - rate) * np.exp(-0.5 * x**2) + rate * np.exp(-0.5 * (x - reach) ** 2)
    return mixed / math.sqrt(2.0 * math.pi)


def _loss(x: Array, rate: float, reach: float) -> Array:
    """Return the logarithm of the two densities' ratio at x, which rises with x."""
    half = 0.5 * reach**2
    return _log_mixed(reach * x - half, rate) - _log_mixed(-reach * x - half, rate)


def _log_mixed(z: Array, rate: float) -> Array:
    """Return ln(1 - q + q e^z), small where z or q is small."""
    above, below = np.maximum(z, 0.0), np.minimum(z, 0.0)
    result: Array = np.log1p(rate * np.expm1(above))
    if rate <= 0.5:
        result += np.log1p(rate * np.expm1(below))
    else:
        result += below + np.log1p((1.0 - rate) * np.expm1(-below))
    return result


def _place(loss: Array, rate: float, reach: float) -> Array:
    """Return the x at which the loss is this: the inverse of `_loss`."""
    size = np.abs(loss)
    far = rate * math.exp(-0.5 * reach**2)
    linear = (1.0 - rate) * np.expm1(size)
    root = np.hypot(linear, 2.0 * far * np.exp(0.5 * size))
    place: Array = np.copysign(np.log((linear + root) / (2.0 * far)) / reach, loss)
    return place
