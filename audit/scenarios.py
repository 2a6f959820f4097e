"""Which rounds are played and what each claims: honest ones, and ones with a planted fault.

A fault is one thing altered in what the real code is given, after the claim was made: a spec, a
sampler, or how often clients answer. What it truly costs is worked out here for comparison.
"""

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from nacl.utils import random as random_bytes
from pyroaring import BitMap
from scipy import stats

from audit.contributions import ContributionGame
from audit.game import Game
from shoal_consortium import quickstart
from shoal_holder.noise import exact_noise
from shoal_protocol.privacy.accounting import Cap, Cost
from shoal_protocol.privacy.job_costs import gaussian_epsilon
from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.queries import (
    Column,
    FirstMoments,
    Mechanism,
    Query,
    SecondMomentMatrix,
    SecondMoments,
)
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing, ThresholdSharing
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.policy import Policy
from shoal_protocol.wire.encoding import Int64Vector

NODES: Final = 3
LARGEST_POPULATION: Final = 8
DELTA: Final = 1e-5
_SEEDS_DELTA: Final = 1e-4
_OPENED_AT: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)

THRESHOLD_OF_DATA: Final = 7.5
"""c, where the authors of the algorithm cut their standardised data."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A round, or a contribution to a crowd, to be played `runs` times in each world.

    With a fault planted, `fault` is the epsilon that it truly costs in the worst case.
    """

    name: str
    game: Game | ContributionGame
    runs: int
    fault: float | None = None

    @property
    def is_faulty(self) -> bool:
        """Tell whether a fault was planted."""
        return self.fault is not None

    def true_epsilon(self, adversary: str) -> float | None:
        """Return what it costs against `adversary`, worked out; None if it is not known."""
        if not self.is_faulty:
            return self.game.true_epsilon(adversary)
        return self.fault if adversary == self.worst_adversary else None

    @property
    def worst_adversary(self) -> str:
        """Return the strongest adversary, the last one: the one the claim is made for."""
        return list(self.game.claims)[-1]


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Makes specs as a trainer does, for one consortium."""

    consortium: Consortium

    @classmethod
    @cache
    def under(cls, *, delta: float) -> "Rounds":
        """Return those of a consortium whose policy allows what the scenarios need."""
        with TemporaryDirectory() as directory:
            consortium = quickstart.make(
                Path(directory),
                consortium="audit",
                compute_nodes=NODES,
                clients={"site": LARGEST_POPULATION},
                url_template="https://{name}.example:{port}",
                first_port=8440,
                policy=Policy(
                    minimum_cohort=2,
                    minimum_colluders=1,
                    colluding_holders=0,
                    minimum_holders=1,
                    maximum_epsilon=100.0,
                    delta=delta,
                    mechanisms=("discrete_gaussian", "discrete_laplace"),
                    queries=("first_moments", "second_moments", "second_moment_matrix"),
                    maximum_round_seconds=3600,
                    minimum_threshold=2,
                ),
                valid_days=1,
                now=_OPENED_AT,
                random_bytes=random_bytes,
            )
        return cls(consortium=consortium)

    def spec(
        self,
        query: Query,
        *,
        cost: Cost,
        mechanism: Mechanism = "discrete_gaussian",
        population: int,
        dropouts: int,
        colluders: int,
        sharing: Sharing = ADDITIVE,
    ) -> RoundSpec:
        """Return the spec of a round of the first `population` clients."""
        return make_spec(
            manifest=self.consortium,
            job="0" * 64,
            number=0,
            query=query,
            mechanism=mechanism,
            cost=cost,
            population=BitMap(range(population)),
            dropouts=dropouts,
            colluders=colluders,
            opened_at=_OPENED_AT,
            deadline=_OPENED_AT + timedelta(seconds=60),
            give_up_at=_OPENED_AT + timedelta(seconds=120),
            sharing=sharing,
        )


def one_square(*, scale: float = 1.0, grid_bits: int = 12) -> SecondMoments:
    """Return the query for one column's squares, where no record is furthest from one."""
    column = Column(name="x", centre=0.0, scale=scale)
    return SecondMoments(
        columns=(column,), intercept=0.0, radius=None, grid_bits=grid_bits, records_per_client=1
    )


def one_sum(*, grid_bits: int) -> FirstMoments:
    """Return the query for one column's sum: two records differ in it, and in nothing else."""
    column = Column(name="x", centre=0.0, scale=1.0)
    return FirstMoments(
        columns=(column,), intercept=0.0, radius=None, grid_bits=grid_bits, records_per_client=1
    )


def matrix_in_a_ball() -> SecondMomentMatrix:
    """Return the query for a matrix of two columns, with less noise off the diagonal."""
    columns = tuple(Column(name=name, centre=0.0, scale=1.0) for name in "xy")
    return SecondMomentMatrix(
        columns=columns, intercept=0.0, radius=0.5, grid_bits=12, records_per_client=1
    )


def honest(epsilon: float, runs: int) -> Scenario:
    """Return a round with Gaussian noise: one of four clients missing, one of them colluding."""
    return Scenario(name=f"Gaussian, ε = {epsilon:g}", game=_gaussian(epsilon), runs=runs)


def honest_matrix(epsilon: float, runs: int) -> Scenario:
    """Return a round with noise of two scales, and threshold sharing."""
    game = _gaussian(epsilon, query=matrix_in_a_ball(), sharing=ThresholdSharing(threshold=2))
    return Scenario(name=f"Gaussian, ε = {epsilon:g}, matrix, t = 2", game=game, runs=runs)


def honest_holders(epsilon: float, runs: int) -> Scenario:
    """Return a round of data holders with 1, 3, 2 and 1 slots; the largest colludes as a whole."""
    game = _holders((1, 3, 2, 1), epsilon, colluders=3)
    return Scenario(name=f"Gaussian, ε = {epsilon:g}, a holder of 3", game=game, runs=runs)


def uncounted_holder(epsilon: float, runs: int) -> Scenario:
    """Plant a data holder that subtracts its own noise, of more slots than the price counts on."""
    game = _holders((1, 3, 1), epsilon, colluders=1)
    spec = game.spec.model_copy(update={"colluders": 3})
    factor = math.sqrt(game.spec.parties / spec.parties)
    return _faulty("a data holder's own noise subtracted", replace(game, spec=spec), factor, runs)


def _holders(sizes: tuple[int, ...], epsilon: float, *, colluders: int) -> Game:
    spec = Rounds.under(delta=DELTA).spec(
        one_square(),
        cost=Cap(epsilon=epsilon, delta=DELTA).whole,
        population=sum(sizes),
        dropouts=0,
        colluders=colluders,
    )
    return Game.honest(spec, delta=DELTA, sizes=sizes)


def honest_laplace(epsilon: float, runs: int) -> Scenario:
    """Return a round with Laplace noise, of which two clients' shares count."""
    return Scenario(name=f"Laplace, ε = {epsilon:g}", game=_laplace(epsilon), runs=runs)


def _gaussian(
    epsilon: float,
    *,
    delta: float = DELTA,
    query: Query | None = None,
    population: int = 4,
    sharing: Sharing = ADDITIVE,
) -> Game:
    spec = Rounds.under(delta=delta).spec(
        one_square() if query is None else query,
        cost=Cap(epsilon=epsilon, delta=delta).whole,
        population=population,
        dropouts=1,
        colluders=1,
        sharing=sharing,
    )
    return Game.honest(spec, delta=delta)


def _laplace(epsilon: float) -> Game:
    spec = Rounds.under(delta=DELTA).spec(
        one_sum(grid_bits=4),  # coarse, for the sampler takes longer on a finer grid
        mechanism="discrete_laplace",
        cost=Cost.pure(epsilon),
        population=5,
        dropouts=1,
        colluders=1,
    )
    return Game.honest(spec, delta=0.0)


@dataclass(frozen=True)
class Weakened:
    """A sampler that draws with its scale multiplied by `factor`."""

    factor: float

    def __call__(self, part: NoisePart, count: int) -> Int64Vector:
        """Draw as `exact_noise` does, with another scale."""
        return exact_noise(replace(part, scale=part.scale * self.factor), count)


def no_noise(part: NoisePart, count: int) -> Int64Vector:
    """Return zeros."""
    return np.zeros(count, np.int64)


def noise_divided_by_root_two(epsilon: float, runs: int) -> Scenario:
    """Plant a sampler that takes a variance for a standard deviation's square twice over."""
    game = _gaussian(epsilon)
    weak = dict.fromkeys(game.cohort, Weakened(math.sqrt(0.5)))
    return _faulty("noise divided by √2", replace(game, samplers=weak), math.sqrt(2.0), runs)


def classical_sigma(epsilon: float, runs: int) -> Scenario:
    """Plant the scale of the classical formula, sigma = sqrt(2 ln(1.25 / delta)) / epsilon."""
    game = _gaussian(epsilon, delta=_SEEDS_DELTA)
    mu = epsilon / math.sqrt(2.0 * math.log(1.25 / _SEEDS_DELTA))
    factor = mu / game.claim.mu
    return _faulty("σ by the classical formula", _rescaled(game, 1.0 / factor), factor, runs)


def missing_noise(epsilon: float, runs: int) -> Scenario:
    """Plant a client more than the round tolerates that adds no noise."""
    game = _gaussian(epsilon, population=5)
    present = len(game.cohort) - game.spec.colluders - 1
    silent = {game.cohort[-1]: no_noise}
    factor = math.sqrt(present / (present - 1))
    return _faulty("a client's noise missing", replace(game, samplers=silent), factor, runs)


def missing_laplace_noise(epsilon: float, runs: int) -> Scenario:
    """Plant the same with Laplace noise: of two shares that count one is missing."""
    game = _laplace(epsilon)
    shares = game.spec.parties
    silent = replace(game, samplers={game.cohort[-1]: no_noise})
    (_, part), _ = game.spec.noise_blocks()
    true = _loss_of_shares((shares - 1) / shares, part.scale, step=round(epsilon * part.scale))
    name = f"a client's noise missing, Laplace, ε = {epsilon:g}"
    return Scenario(name=name, game=silent, runs=runs, fault=true)


def _loss_of_shares(shape: float, scale: float, *, step: int) -> float:
    """Return the largest log ratio of G - G' at places `step` apart, G negative binomial."""
    pmf = stats.nbinom.pmf(np.arange(60 * round(scale)), shape, -math.expm1(-1.0 / scale))
    logs = np.log([pmf[: len(pmf) - abs(x)] @ pmf[abs(x) :] for x in range(-step, 2 * step)])
    return float(np.max(np.abs(logs[step:] - logs[:-step])))


def fresh_noise_on_retry(epsilon: float, runs: int, sends: int = 5) -> Scenario:
    """Plant clients that draw anew for each of several sends, all of which are summed."""
    game = replace(_gaussian(epsilon), sends=sends)
    return _faulty(f"fresh noise in {sends} sends", game, math.sqrt(sends), runs)


def sensitivity_of_values(epsilon: float, runs: int) -> Scenario:
    """Plant the sensitivity of values within +-c, where squares are summed: c instead of c^2."""
    game = _gaussian(epsilon, query=one_square(scale=THRESHOLD_OF_DATA))
    weak = _rescaled(game, 1.0 / THRESHOLD_OF_DATA)
    return _faulty("sensitivity c for c²", weak, THRESHOLD_OF_DATA, runs)


def _rescaled(game: Game, factor: float) -> Game:
    noise = game.spec.noise.model_copy(update={"scale": game.spec.noise.scale * factor})
    return replace(game, spec=game.spec.model_copy(update={"noise": noise}))


def _faulty(what: str, game: Game, factor: float, runs: int) -> Scenario:
    claim = game.claim
    true = gaussian_epsilon(mu=factor * claim.mu, delta=claim.delta)
    return Scenario(name=f"{what}, ε = {claim.epsilon:.3g}", game=game, runs=runs, fault=true)
