"""Posteriors of variational inference: a normal in unconstrained space, in the data's units.

The learner measures gradients along the path. From them this module judges whether the path
arrived, and how much noise is in the result.
"""

from collections.abc import Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.models.numpyro_models import Latent
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Base64, Finite, Place, Positive, Real, Size
from shoal_studies.posteriors.base import (
    PRIOR_DECIDES,
    Prior,
    evenly_spread,
    prior_caution,
)
from shoal_studies.posteriors.forms import DrawnPosterior, decoded_numbers, encoded

FALSE_ALARMS: Final = 0.001
"""At most: how often a path that has arrived is called "not_arrived". "cannot_tell" has no rate."""
MOST_CORRELATED: Final = 64
"""Numbers in a posterior with correlations: 2,080 of those, 22 kilobytes."""
_FAR: Final = 0.6  # posterior standard deviations: noise alone seldom leaves more at low noise
_MOSTLY_NOISE: Final = 0.5  # of a posterior variance
_SCATTERED: Final = 0.5  # by more, points pull values by about a third of a posterior sd
_SEEN: Final = 3.0  # standard errors of a curvature, which none of no records reaches by chance

Verdict = Literal["arrived", "cannot_tell", "not_arrived"]
_SAID: Final = {
    "arrived": "arrived",
    "cannot_tell": "CANNOT TELL whether it arrived",
    "not_arrived": "NOT ARRIVED",
}

_Numbers = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=10_000)]
_Sizes = tuple[Size, ...]
_NOT_ARRIVED: Final = (
    "THE PATH HAS NOT ARRIVED: neither values nor intervals are to be trusted; take more rounds, "
    "and simulate the job first"
)


class Convergence(Model):
    """Of each unconstrained number, over the path's second half; tuples of length d.

    `slopes` are the mean slopes of the log posterior there, in standard errors of the noise in
    them: noise about 0 if the path has arrived. `distances` say how far its mean was from the
    posterior's, in posterior standard deviations; `noise_shares` how much of the posterior
    variance is due to privacy noise and batches; `scatters` the mean square distance of the points
    from their mean, over the posterior standard deviation: what bends in the gradients pulls values
    by about three quarters of it, in posterior standard deviations. `signals` are the likelihood's
    curvatures along each number, in their standard errors: noise about 0 if nobody had a record,
    whatever the prior makes of the posterior. `may_clip` unless the task's
    bounds and clip rule out that a record's gradient was clipped. `rounds` went into the posterior.
    """

    rounds: Place
    slopes: _Numbers
    distances: _Sizes
    noise_shares: tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...]
    scatters: _Sizes
    signals: _Numbers
    may_clip: bool

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        others = (self.distances, self.noise_shares, self.scatters, self.signals)
        if any(len(each) != len(self.slopes) for each in others):
            raise ValueError("slopes, distances, shares, scatters and signals must be as many")
        return self

    @staticmethod
    def limit_for(size: int) -> float:
        """Return what none of `size` standard normals exceeds with probability 1 - FALSE_ALARMS.

        Or more: Bonferroni's bound.
        """
        return NormalDist().inv_cdf(1.0 - FALSE_ALARMS / (2.0 * size))

    @property
    def verdict(self) -> Verdict:
        """Whether the path had arrived where its gradients point, as far as the sums show.

        "not_arrived": it was more than .6 posterior standard deviations away, by slopes that are
        more than noise. "arrived": it was not, and there is none of the `doubts`.
        """
        if max(self.distances) > _FAR:
            steep = float(np.max(np.abs(self.slopes)))
            if steep > self.limit_for(len(self.slopes)):
                return "not_arrived"
        return "cannot_tell" if self.doubts else "arrived"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why it cannot be told that the path has arrived, and what to do; empty if it can."""
        found = {
            "noise alone could leave such slopes far from the posterior: take more rounds": (
                max(self.distances) > _FAR
            ),
            "noise is most of a variance, and hides both strong effects and a path still on its "
            "way: ask more clients, or at a larger epsilon": max(self.noise_shares) > _MOSTLY_NOISE,
            "records bend the posterior little more than noise does, as if few clients had any: "
            "ask more clients, or at a larger epsilon": min(self.signals) < _SEEN,
            "points lay so far apart that gradients bend between them: take a lower learning_rate "
            "and more rounds": max(self.scatters) > _SCATTERED,
            "gradients may have been clipped, which pulls values unseen: take a clip that no "
            "record's gradient exceeds, if noise allows": self.may_clip,
        }
        return tuple(reason for reason, holds in found.items() if holds)

    @property
    def caution(self) -> str | None:
        """What the verdict means for the user and what to do, None if there is nothing to do."""
        if self.verdict == "arrived":
            return None
        if self.verdict == "not_arrived":
            return _NOT_ARRIVED
        return (
            "WHETHER THE PATH HAS ARRIVED CANNOT BE TOLD, and neither whether the intervals hold, "
            f"least of all those of strong effects: {'; '.join(self.doubts)}; simulate the job"
        )

    def __str__(self) -> str:
        least, most = min(self.noise_shares), max(self.noise_shares)
        return (
            f"{_SAID[self.verdict]}: slopes left up to "
            f"{np.max(np.abs(self.slopes)):.1f} standard errors, {max(self.distances):.1f} "
            f"posterior sds to go; noise and batches are {least:.0%} to {most:.0%} of variances"
        )


_MEAN_FIELD: Final = (
    "a mean-field approximation, of too few rounds or too many numbers to know of noise: intervals "
    "are too narrow, and clipping or too few rounds pull the values themselves: simulate the job "
    "to see how far"
)
_CLIPPED: Final = "what clipping does to the values is in no interval: simulate the job to see it"


_MEASURED: Final = (
    "how often such intervals hold was measured on a line with an unknown scale, 86 % to 97 % of "
    "those at 90 %: simulate the job to see how your model does"
)
_POINTS: Final = 4096


def names_of(latents: Sequence[Latent]) -> tuple[str, ...]:
    """Return the names of the latents' numbers, in order."""
    return tuple(label for latent in latents for label in latent.labels())


class VariationalPosterior(DrawnPosterior):
    """Latents whose d unconstrained numbers are normal: `location` and `scale`, shapes (d,).

    `latents` say how unconstrained numbers become latents, in order; `names`, mean, sd, intervals
    and draws are of the latents themselves, with one entry for each of their numbers. They are
    computed on 4,096 points that fill the distribution evenly, good to about two digits.

    With `convergence` it knows of the privacy noise and of batches; what clipping does to the
    values no sum shows. `correlation` packs the lower Cholesky factor of the correlation matrix,
    row by row, as little-endian doubles. Without both it is a mean-field approximation, and is
    TOO NARROW: `caution` says so. `prior_sd`, shape (d,), are standard deviations of the prior,
    taken as normal near the posterior. `records` is how many went into it at most: one for each
    client that joined, or as many as one may have.
    """

    name: Literal["variational"] = "variational"
    columns: Annotated[tuple[str, ...], Field(min_length=1)]  # of a record
    latents: Annotated[tuple[Latent, ...], Field(min_length=1)]
    location: Annotated[tuple[Real, ...], Field(min_length=1, max_length=10_000)]
    scale: tuple[Positive, ...]
    correlation: Base64 | None = None
    convergence: Convergence | None = None
    prior_sd: tuple[Positive, ...]

    @model_validator(mode="after")
    def _one_for_each_number(self) -> Self:
        slopes = None if self.convergence is None else self.convergence.slopes
        numbers = [self.location, self.scale, self.prior_sd, slopes]
        size = sum(latent.unconstrained for latent in self.latents)
        if any(each is not None and len(each) != size for each in numbers):
            raise ValueError(
                "location, scale, prior_sd and convergence must have one number for each "
                "unconstrained number"
            )
        if self.names != names_of(self.latents):
            raise ValueError("names must be those of the latents' numbers, in order")
        if (self.correlation is None) != (self.convergence is None):
            raise ValueError("correlations and a convergence go together")
        _unpacked(self.correlation, len(self.location))
        return self

    @property
    def caution(self) -> str:
        if self.convergence is None:
            said = [_MEAN_FIELD, self._prior_caution]
        else:
            said = [self.convergence.caution, self._prior_caution, _CLIPPED]
            said += [] if self._is_real else [_MEASURED]
        return "; ".join(each for each in said if each is not None)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        shares = self._prior_shares
        said = []
        if self.convergence is not None:
            said += [
                ("Intervals know", "of privacy noise and batches"),
                ("Path", str(self.convergence)),
            ]
        share = f"{shares.min():.0%} to {shares.max():.0%} of variances, near the posterior"
        return (*said, ("Prior's share", share))

    @property
    def _prior_shares(self) -> Floats:
        """Shares of the prior in the unconstrained numbers, shape (d,)."""
        known = Prior(np.zeros(len(self.prior_sd)), np.array(self.prior_sd))
        return known.shares(np.array(self.scale))

    @property
    def _prior_caution(self) -> str | None:
        decided = np.flatnonzero(self._prior_shares >= PRIOR_DECIDES).tolist()
        if self._is_real:
            return prior_caution([self.names[place] for place in decided])
        return prior_caution([f"unconstrained number {place + 1}" for place in decided])

    @property
    def _is_real(self) -> bool:
        """Whether the unconstrained numbers are the latents, as a regression's coefficients are."""
        return all(latent.support == "real" for latent in self.latents)

    @property
    def sd(self) -> Floats:
        return np.asarray(self.draws.std(axis=0))

    def sample(self, count: int, generator: np.random.Generator) -> Floats:
        return self._constrained(generator.standard_normal((count, len(self.location))))

    @cached_property
    def draws(self) -> Floats:
        """Latents at points of a lattice that fills the unit cube, taken to the normal."""
        places = evenly_spread(_POINTS, len(self.location))
        ranks = np.argsort(np.argsort(places, axis=0), axis=0)  # each margin exactly even
        quantiles = [NormalDist().inv_cdf((rank + 0.5) / _POINTS) for rank in range(_POINTS)]
        return self._constrained(np.array(quantiles)[ranks])

    def _constrained(self, standard: Floats) -> Floats:
        """Return the latents' numbers, shape (n, k), of standard normal ones, shape (n, d)."""
        factor = _unpacked(self.correlation, len(self.location))
        turned = standard if factor is None else standard @ factor.T
        values = np.array(self.location) + np.array(self.scale) * turned
        ends = np.cumsum([latent.unconstrained for latent in self.latents])
        parts = np.split(values, ends[:-1], axis=1)
        return np.column_stack(
            [latent.constrain(part) for latent, part in zip(self.latents, parts, strict=True)]
        )

    def __repr__(self) -> str:
        numbers, kind = len(self.location), type(self).__name__
        return f"<{kind} of {numbers} numbers from {self.records} records: {self.caution}>"

    __str__ = __repr__


def packed(factor: Floats) -> str:
    """Return a lower triangular matrix's rows, up to the diagonal, as doubles in base64."""
    return encoded(factor[np.tril_indices(len(factor))] + 0.0)  # no -0: a factor is one document


def _unpacked(correlation: str | None, size: int) -> Floats | None:
    if correlation is None:
        return None
    values = decoded_numbers(correlation)
    if size > MOST_CORRELATED or len(values) != size * (size + 1) // 2:
        raise ValueError(f"correlations: d (d + 1)/2 doubles, of at most {MOST_CORRELATED} numbers")
    if np.any(np.signbit(values) & (values == 0.0)):
        raise ValueError("a factor of correlations has no negative zeros")
    factor = np.zeros((size, size))
    factor[np.tril_indices(size)] = values
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(factor, axis=1)
    if not np.allclose(lengths, 1.0, rtol=0.0, atol=1e-9) or np.any(np.diagonal(factor) < 0.0):
        raise ValueError("rows of a factor of correlations have length 1, the last number >= 0")
    return factor
