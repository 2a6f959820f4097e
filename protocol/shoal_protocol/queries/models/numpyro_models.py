"""Compiles a NumPyro model of one record into gradients.

A model is a function of one record, a mapping from column names to numbers. Its latents are global:
they belong to all records. JAX and NumPyro are imported where they are used, in double precision,
without changing the process's own setting.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.queries.design import Floats
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Real

Support = Literal["real", "positive", "interval", "simplex", "ordered"]


class Latent(Model):
    """One latent: its shape, and the map to its support from unconstrained numbers u.

    real: u. positive: `offset` + `factor` exp(u), so any half-line. interval: `offset` + `factor` /
    (1 + exp(-u)). simplex: a vector by stick breaking, of one u less than its length. ordered: an
    increasing vector, u_1, u_1 + exp(u_2), and so on.
    """

    name: Annotated[str, Field(min_length=1, max_length=64)]
    shape: Annotated[
        tuple[Annotated[int, Field(ge=1, le=10_000, strict=True)], ...], Field(max_length=4)
    ] = ()
    support: Support = "real"
    offset: Real = 0.0
    factor: Real = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> "Latent":
        if self.support in ("simplex", "ordered") and len(self.shape) != 1:
            raise ValueError("a simplex or ordered latent must be a vector")
        if self.unconstrained < 1:
            raise ValueError("a simplex must have two parts or more")
        return self

    @property
    def size(self) -> int:
        """How many numbers the latent itself has."""
        return math.prod(self.shape)

    @property
    def unconstrained(self) -> int:
        """How many unconstrained numbers it takes."""
        return self.size - (self.support == "simplex")

    def labels(self) -> list[str]:
        """Return a name for each of its numbers: "w[0]" for the first of a vector w."""
        if not self.shape:
            return [self.name]
        places = itertools.product(*(range(length) for length in self.shape))
        return [f"{self.name}[{','.join(map(str, place))}]" for place in places]

    def constrain(self, values: Floats) -> Floats:
        """Return the latent's numbers, shape (n, size), of `values`, shape (n, unconstrained)."""
        match self.support:
            case "positive":
                return self.offset + self.factor * np.exp(values)
            case "interval":
                return self.offset + self.factor * 0.5 * (1.0 + np.tanh(0.5 * values))
            case "simplex":
                left = np.arange(values.shape[1], 0, -1, dtype=np.float64)
                parts = 0.5 * (1.0 + np.tanh(0.5 * (values - np.log(left))))
                rest = np.cumprod(1.0 - parts, axis=1)
                before = np.column_stack([np.ones(len(values)), rest[:, :-1]])
                return np.column_stack([parts * before, rest[:, -1]])
            case "ordered":
                steps = np.column_stack([values[:, :1], np.exp(values[:, 1:])])
                return np.cumsum(steps, axis=1)
        return values


RecordModel = Callable[[Mapping[str, Any]], Any]

_SITES: Final = {"sample", "deterministic", "plate"}
_AGREEMENT: Final = 1e-9
# Primitives that end when something is reached: `while` itself, those that are made of it, and
# LAPACK's iterations for eigenvalues and singular values.
_LOOPS: Final = {
    *("while", "igamma", "igammac", "igamma_grad_a", "random_gamma_grad"),
    *("regularized_incomplete_beta", "eig", "eigh", "schur", "svd"),
}


@dataclass(frozen=True)
class CompiledModel:
    """A model's latents, in the order of the unconstrained vector u, and its gradients at u."""

    latents: tuple[Latent, ...]
    _likelihood: Callable[[Any, Any], Any]
    _prior: Callable[[Any], Any]

    @property
    def dimension(self) -> int:
        """Return d, the length of u."""
        return sum(latent.unconstrained for latent in self.latents)

    def gradients(self, point: Floats, values: Floats) -> Floats:
        """Return each record's gradient of its log-likelihood at u = `point`, shape (r, d).

        `values` has shape (r, m), the columns in the order that the model was compiled for. What
        the model does not define is not a finite number. The first call for another r compiles.
        """
        import jax

        with jax.enable_x64(True):
            return np.asarray(self._likelihood(point, values), dtype=np.float64)

    def prior_gradient(self, point: Floats) -> Floats:
        """Return the gradient of the log prior density of u at `point`, shape (d,).

        The density is that of u itself: the Jacobian of the map to the latents is in it.
        """
        import jax

        with jax.enable_x64(True):
            return np.asarray(self._prior(point), dtype=np.float64)


def compile_model(
    model: RecordModel, columns: Sequence[str], *, lower: Floats, upper: Floats
) -> CompiledModel:
    """Return the gradients of a model of one record.

    `columns` are the record's, in order; `lower` and `upper`, shapes (m,), are the values at their
    bounds, on which the model is tried.

    Raises:
        ValueError: the model cannot be learned so; the message says which site is in the way.
        ImportError: JAX or NumPyro is not installed.
    """
    import jax
    from numpyro.handlers import seed, substitute, trace

    def record(values: Any) -> dict[str, Any]:
        return {name: values[place] for place, name in enumerate(columns)}

    with jax.enable_x64(True):
        examples = [record(jax.numpy.asarray(values, dtype="float64")) for values in (lower, upper)]
        first, second = (
            trace(substitute(seed(model, 0), substitute_fn=_placed_at(place))).get_trace(example)
            for place, example in zip((0.2, -0.3), examples, strict=True)
        )
        latents = _checked(first)
        if latents != _checked(second):
            raise ValueError(
                "the model's latents, or the bounds of their support, depend on the record or on "
                "other latents: both must be the same for all records"
            )
        maps = _maps(first, latents)

        def log_densities(point: Any, example: Mapping[str, Any]) -> tuple[Any, Any]:
            unconstrained = _split(point, latents)
            values = {name: maps[name](part) for name, part in unconstrained.items()}
            sites = trace(substitute(seed(model, 0), values)).get_trace(example)
            likelihood = sum(
                site["fn"].log_prob(site["value"]).sum()
                for site in sites.values()
                if site["type"] == "sample" and site["is_observed"]
            )
            prior = sum(
                sites[name]["fn"].log_prob(values[name]).sum()
                + maps[name].log_abs_det_jacobian(unconstrained[name], values[name]).sum()
                for name in values
            )
            return likelihood, prior

        compiled = CompiledModel(
            latents,
            jax.jit(
                jax.vmap(
                    jax.grad(lambda point, values: log_densities(point, record(values))[0]),
                    (None, 0),
                )
            ),
            jax.jit(jax.grad(lambda point: log_densities(point, examples[0])[1])),
        )
        _refuse_records_in_the_prior(log_densities, compiled.dimension, examples)
        places = np.zeros(compiled.dimension), np.asarray(lower, dtype=np.float64)[None]
        _refuse_other_work(jax.make_jaxpr(compiled._likelihood)(*places).jaxpr)
    return compiled


def _placed_at(place: float) -> Callable[[Mapping[str, Any]], Any]:
    """Return what puts every latent where its unconstrained numbers are `place`: none is drawn."""
    from numpyro.distributions import biject_to

    def value(site: Mapping[str, Any]) -> Any:
        if site["type"] != "sample" or site["is_observed"] or site["fn"].support.is_discrete:
            return None
        to_support = biject_to(site["fn"].support)
        return to_support(np.full(to_support.inverse_shape(site["fn"].shape()), place))

    return value


def _checked(sites: Mapping[str, Any]) -> tuple[Latent, ...]:
    """Return the latents of a trace, or refuse what is in the way of learning them."""
    from numpyro.distributions.distribution import Unit

    observed, latents = 0, []
    for name, site in sites.items():
        if site["type"] not in _SITES:
            raise ValueError(f"site {name!r}: {site['type']} sites are not supported")
        if site["type"] != "sample":
            continue
        if isinstance(site["fn"], Unit):
            raise ValueError(f"site {name!r}: numpyro.factor is neither prior nor likelihood")
        if site["scale"] is not None:
            raise ValueError(f"site {name!r}: scaled sites and subsampling are not supported")
        if site["is_observed"]:
            observed += 1
        elif site["fn"].support.is_discrete:
            raise ValueError(f"latent {name!r} is discrete: sum it out, or observe it")
        elif site["cond_indep_stack"]:
            raise ValueError(
                f"latent {name!r} is inside a plate: latents must be global; for a vector of them "
                "write .expand([...]).to_event(1)"
            )
        else:
            latents.append(_latent(name, site))
    if not observed:
        raise ValueError("the model observes nothing of a record: give a site obs=record[...]")
    if not latents:
        raise ValueError("the model has no latent")
    return tuple(latents)


def _latent(name: str, site: Mapping[str, Any]) -> Latent:
    from numpyro.distributions import biject_to

    shape = tuple(int(length) for length in np.shape(site["value"]))
    support, offset, factor = _support(name, biject_to(site["fn"].support))
    return Latent.model_validate(
        {"name": name, "shape": shape, "support": support, "offset": offset, "factor": factor}
    )


def _support(name: str, transform: Any) -> tuple[str, float, float]:
    """Return which of our maps a NumPyro transform is."""
    from numpyro.distributions import transforms

    kinds: dict[type, str] = {
        transforms.IdentityTransform: "real",
        transforms.ExpTransform: "positive",
        transforms.SigmoidTransform: "interval",
        transforms.StickBreakingTransform: "simplex",
        transforms.OrderedTransform: "ordered",
    }
    while isinstance(transform, transforms.IndependentTransform):
        transform = transform.base_transform
    parts = getattr(transform, "parts", [transform])
    kind = kinds.get(type(parts[0]))
    if (
        kind in ("positive", "interval")
        and len(parts) == 2
        and type(parts[1]) is transforms.AffineTransform
    ):
        offset, factor = np.unique(parts[1].loc), np.unique(parts[1].scale)
        if len(offset) == len(factor) == 1:
            return kind, float(offset[0]), float(factor[0])
    elif kind is not None and len(parts) == 1:
        return kind, 0.0, 1.0
    raise ValueError(
        f"latent {name!r}: its support is not supported; those are that are real, or "
        "bounded on one side or both (alike for all its numbers), or simplex or ordered vectors"
    )


def _maps(sites: Mapping[str, Any], latents: Sequence[Latent]) -> dict[str, Any]:
    """Return NumPyro's own transforms, after comparing ours with them."""
    from numpyro.distributions import biject_to

    maps = {latent.name: biject_to(sites[latent.name]["fn"].support) for latent in latents}
    for latent in latents:
        tried = np.linspace(-1.3, 1.7, latent.unconstrained)
        [ours] = latent.constrain(tried[None])
        theirs = np.ravel(maps[latent.name](_shaped(tried, latent)))
        if not np.allclose(ours, theirs, rtol=_AGREEMENT, atol=_AGREEMENT):
            raise ValueError(f"latent {latent.name!r}: this NumPyro maps its support differently")
    return maps


def _shaped(values: Any, latent: Latent) -> Any:
    is_elementwise = latent.support in ("real", "positive", "interval")
    return values.reshape(latent.shape) if is_elementwise else values


def _split(point: Any, latents: Sequence[Latent]) -> dict[str, Any]:
    parts, start = {}, 0
    for latent in latents:
        end = start + latent.unconstrained
        parts[latent.name] = _shaped(point[start:end], latent)
        start = end
    return parts


def _refuse_other_work(program: Any) -> None:
    """Refuse a program whose work depends on data, or that calls back into Python."""
    for equation in program.eqns:
        kind = equation.primitive.name
        if "callback" in kind:
            raise ValueError("the model calls back into Python: it must be pure")
        if kind in _LOOPS:
            raise ValueError(
                "the model loops until something is reached (as incomplete gamma and beta "
                "functions and eigenvalues do): how long it takes would tell of a record"
            )
        for inner in _programs(list(equation.params.values())):
            _refuse_other_work(inner)


def _programs(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _programs(value)
        elif hasattr(value, "eqns") or hasattr(value, "jaxpr"):
            yield getattr(value, "jaxpr", value)


def _refuse_records_in_the_prior(
    log_densities: Callable[[Any, Any], tuple[Any, Any]],
    dimension: int,
    examples: Sequence[Mapping[str, Any]],
) -> None:
    import jax

    log_prior = jax.jit(lambda point, example: log_densities(point, example)[1])
    for point in (np.zeros(dimension), np.linspace(-0.7, 0.9, dimension)):
        one, other = (float(log_prior(point, example)) for example in examples)
        if not np.isclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True):
            raise ValueError("the prior depends on the record: it must be the same for all of them")
