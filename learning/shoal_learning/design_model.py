"""Linear regression given the design, as a NumPyro model of noisy second moments.

The design X has no model: given W = X'X = LL' and residuals s times standard normal ones, exactly
X'y = Wb + sLe and y'y = |L'b + se|^2 + s^2 Q with e ~ N(0, I) and Q ~ chi^2 of n - k degrees of
freedom, independent. Only the unknown matrix W needs a prior. Derivation: docs/mathematics.md.
Needs the extra `numpyro`; imported by `conditional_design` alone.
"""

import functools
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.infer.hmc import hmc
from numpyro.infer.util import constrain_fn, potential_energy

PRIOR_RESIDUAL_SD: Final = 0.25
"""Scale of the half normal prior of s; the target lies in [-1, 1]."""
_MAXIMUM_TREE_DEPTH: Final = 10


class Kind(NamedTuple):
    """What decides the model's shape: has it a constant first column, do rows shrink into a ball,
    is the noise Laplace's instead of normal."""

    constant: bool
    shrunk: bool
    laplace: bool


class Evidence(NamedTuple):
    """Noisy moments and what is public about them; batched, every field has one more axis in front.

    `gram`, shape (k, k), `cross`, shape (k,), and `square` are X'X, X'y and y'y with noise of
    standard deviation `diagonal_sd` and `off_diagonal_sd`. Up to `most` rows went in, at least
    `least_fraction` of them; `seen` is their number with noise of standard deviation `seen_sd`.
    `prior_sd`, shape (k,): of b. `mean_square`: what the prior expects of a column. `constant` is
    the first column before rows shrink, where there is one.
    """

    gram: Array
    cross: Array
    square: Array
    diagonal_sd: Array
    off_diagonal_sd: Array
    most: Array
    least_fraction: Array
    seen: Array
    seen_sd: Array
    prior_sd: Array
    mean_square: Array
    constant: Array


class Draws(NamedTuple):
    """Draws of b, shape (batch, draws, k), and of s, shape (batch, draws); how each batch's chain
    went: divergent transitions, and leapfrog steps on average, both of shape (batch,)."""

    coefficients: Array
    residual_sd: Array
    divergences: Array
    steps: Array


def model(kind: Kind, evidence: Evidence) -> None:
    """The joint density of W, b, s and the noisy moments.

    b, e and Q are sampled in coordinates in which, given W and s, the moments make them nearly
    standard normal: else weak noise leaves a thin sheet that no sampler gets along. The factor
    holds their own densities and the Jacobian, so it is the same distribution.
    """
    size = evidence.cross.shape[-1]
    noise = dist.Laplace if kind.laplace else dist.Normal
    unit = jnp.sqrt(0.5) if kind.laplace else 1.0  # scale of noise of standard deviation 1
    rows = evidence.most * numpyro.sample("fraction", dist.Uniform(evidence.least_fraction, 1.0))
    shrinkage = numpyro.sample("shrinkage", dist.Beta(4.0, 1.0)) if kind.shrunk else 1.0
    mean_squares = jnp.zeros(0)
    if size > kind.constant:
        prior = dist.Exponential(jnp.ones(size - kind.constant) / evidence.mean_square)
        mean_squares = numpyro.sample("mean_squares", prior.to_event(1))
    if kind.constant:
        first = evidence.constant**2 * shrinkage
        mean_squares = jnp.concatenate([jnp.reshape(first, (1,)), mean_squares])
    directions = jnp.eye(1)
    if size > 1:
        directions = numpyro.sample("directions", dist.LKJCholesky(size, 1.0))
    root = jnp.sqrt(rows * mean_squares)[:, None] * directions
    gram = root @ root.T
    residual_sd = numpyro.sample("residual_sd", dist.HalfNormal(PRIOR_RESIDUAL_SD))
    s = residual_sd * jnp.sqrt(shrinkage)

    real = dist.ImproperUniform(dist.constraints.real_vector, (), (size,))
    standard_b, standard_e = numpyro.sample("b", real), numpyro.sample("e", real)
    standard_q = numpyro.sample("q", dist.ImproperUniform(dist.constraints.real, (), ()))
    off, diagonal = evidence.off_diagonal_sd, evidence.diagonal_sd
    spread = jnp.linalg.cholesky(s**2 * gram + off**2 * jnp.eye(size))
    half = jax.scipy.linalg.solve_triangular(spread, gram, lower=True)
    seen = jax.scipy.linalg.solve_triangular(spread, evidence.cross, lower=True)
    b, b_scale = _from_standard(
        standard_b, jnp.diag(evidence.prior_sd**-2.0) + half.T @ half, half.T @ seen
    )
    ratio = s / off
    e, e_scale = _from_standard(
        standard_e,
        jnp.eye(size) + ratio**2 * root.T @ root,
        ratio / off * root.T @ (evidence.cross - gram @ b),
    )
    explained = jnp.sum((root.T @ b + s * e) ** 2)
    chi_squared, q_scale = _residual_squares(
        standard_q, evidence.square - explained, diagonal, s**2, rows - size
    )
    own = dist.Normal(0.0, evidence.prior_sd).log_prob(b).sum() + dist.Normal().log_prob(e).sum()
    own += dist.Chi2(rows - size).log_prob(chi_squared)
    numpyro.factor("transport", own + b_scale + e_scale + q_scale)
    numpyro.deterministic("coefficients", b)

    numpyro.sample("count", noise(rows, unit * evidence.seen_sd), obs=evidence.seen)
    upper = jnp.triu_indices(size)
    sd = off + (diagonal - off) * jnp.eye(size)
    numpyro.sample("gram", noise(gram[upper], unit * sd[upper]), obs=evidence.gram[upper])
    numpyro.sample("cross", noise(gram @ b + s * root @ e, unit * off), obs=evidence.cross)
    square = explained + s**2 * chi_squared
    numpyro.sample("square", noise(square, unit * diagonal), obs=evidence.square)


def _from_standard(standard: Array, precision: Array, weighted: Array) -> tuple[Array, Array]:
    """Return x with x ~ N(precision^-1 weighted, precision^-1) if `standard` ~ N(0, I), and the
    logarithm of the Jacobian's determinant."""
    factor = jnp.linalg.cholesky(precision)
    mean = jax.scipy.linalg.cho_solve((factor, True), weighted)
    deviation = jax.scipy.linalg.solve_triangular(factor.T, standard, lower=False)
    return mean + deviation, -jnp.log(jnp.diagonal(factor)).sum()


def _residual_squares(
    standard: Array, seen: Array, sd: Array, variance: Array, freedom: Array
) -> tuple[Array, Array]:
    """Return Q > 0 such that `variance` Q is about normal given its noisy value `seen`, and the
    logarithm of the Jacobian.

    Were Q normal, with mean and half the variance `freedom`, and `standard` ~ N(0, 1), it would be
    exactly; below half its mean a smooth bend keeps it positive.
    """
    precision = 1.0 / sd**2 + 0.5 / (variance**2 * freedom)
    mean = variance * freedom + (seen - variance * freedom) / (sd**2 * precision)
    share = (mean + standard / jnp.sqrt(precision)) / (variance * freedom)
    low = 2.0 * jnp.minimum(share, 0.5) - 1.0
    bent = jnp.where(share < 0.5, 0.5 * jnp.exp(low), share)
    return freedom * bent, low - jnp.log(variance) - 0.5 * jnp.log(precision)


class Coordinates(NamedTuple):
    """Where a chain's unconstrained parameters lie, about: x = `location` + `scale` z."""

    location: dict[str, Array]
    scale: dict[str, Array]


@functools.partial(jax.jit, static_argnames=("kind", "warmup", "count"))
def run_chains(
    kind: Kind,
    evidence: Evidence,
    coordinates: Coordinates,
    start: dict[str, Array],
    keys: Array,
    target_acceptance: float,
    thinning: int,
    *,
    warmup: int,
    count: int,
) -> Draws:
    """Return `count` draws of one NUTS chain for each element of the batch (the first axis).

    After `warmup` transitions every `thinning`-th is kept; divergences count all of them. The mass
    matrix is diagonal: with a dense one, estimated from as many draws, steps were no longer.

    `start` are parameters in the units of `coordinates`; `keys` JAX's, shape (batch,). One chain
    per batch element: chains of the same data are equal elements with different starts and keys.
    """

    def chain(
        evidence: Evidence, coordinates: Coordinates, start: dict[str, Array], key: Array
    ) -> tuple[Array, Array, Array, Array]:
        z, unravel = ravel_pytree(start)
        location, scale = ravel_pytree(coordinates.location)[0], ravel_pytree(coordinates.scale)[0]

        def parameters(z: Array) -> dict[str, Array]:
            found: dict[str, Array] = unravel(location + scale * z)
            return found

        def potential(z: Array) -> Array:
            energy: Array = potential_energy(model, (kind, evidence), {}, parameters(z))
            return energy

        def wanted(z: Array) -> tuple[Array, Array]:
            sites = constrain_fn(
                model, (kind, evidence), {}, parameters(z), return_deterministic=True
            )
            return sites["coefficients"], sites["residual_sd"]

        begin, advance = hmc(potential, algo="NUTS")
        state = begin(
            z,
            warmup,
            target_accept_prob=target_acceptance,
            max_tree_depth=_MAXIMUM_TREE_DEPTH,
            find_heuristic_step_size=True,
            rng_key=key,
        )

        def one(_: Array, carried: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
            state, diverging, steps = carried
            state = advance(state)
            return state, diverging + state.diverging, steps + state.num_steps

        def kept(state: Any, transitions: Array) -> tuple[Any, tuple[Array, Array, Array]]:
            zero = jnp.zeros((), dtype=int)
            state, diverging, steps = jax.lax.fori_loop(0, transitions, one, (state, zero, zero))
            return state, (state.z, diverging, steps)

        # The warm-up is the first turn of the same loop, so that a transition is compiled once.
        turns = jnp.full(count + 1, thinning).at[0].set(warmup)
        _, (positions, diverging, steps) = jax.lax.scan(kept, state, turns)
        coefficients, residual_sd = jax.vmap(wanted)(positions[1:])
        mean_steps = steps[1:].sum() / (count * thinning)
        return coefficients, residual_sd, diverging[1:].sum(), mean_steps

    return Draws(*jax.vmap(chain)(evidence, coordinates, start, keys))


def unconstrained_directions(factors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return Cholesky factors of correlation matrices, shape (n, k, k), in free coordinates."""
    free = dist.biject_to(dist.constraints.corr_cholesky).inv(jnp.asarray(factors))
    return np.asarray(free)
