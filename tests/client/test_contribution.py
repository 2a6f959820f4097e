"""A data holder's answer: what nodes can open adds up to its encoded records and their noise."""

import numpy as np
import pytest

from shoal_holder import contribution
from shoal_holder.contribution import (
    box_keys,
    draw_noise,
    encoded_together,
    seal_contribution,
)
from shoal_protocol.privacy.mechanisms import (
    DiscreteLaplaceNoise,
    GaussianPart,
    LaplacePart,
    NoisePart,
)
from shoal_protocol.queries import (
    ClassScoreSum,
    HazardScoreSum,
    Query,
    ScoreSum,
    SecondMomentMatrix,
)
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import received, summation
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.sharing.shares import from_ring
from shoal_protocol.wire.encoding import Int64Vector
from tests.privacy.sensitivity_search import in_data_units
from tests.world.adding import added
from tests.world.around_holder import COLUMNS, QUERY, World, no_noise
from tests.world.people import rows_at
from tests.world.strategies import make_query

SHARING = ADDITIVE


@pytest.fixture
def spec(world: World) -> RoundSpec:
    return world.announce(world.submit()).body


def contribute(world: World, spec: RoundSpec, holder: int, noise=no_noise) -> list[bytes]:
    """Return the answer of a holder of this index, whose one record is that of client 0."""
    [drawn] = draw_noise(spec, 1, noise)
    return seal_contribution(
        spec,
        box_keys(world.consortium),
        holder,
        world.key,
        spec.query.encode(rows_at(world.records, 0, COLUMNS)),
        drawn,
        random_bytes=world.random_bytes,
    )


def opened(world: World, encoded: list[bytes]) -> Int64Vector:
    shares = [
        received.parse(each).open(bytes(node.box_key), bytes(node.box_key.public_key))
        for each, node in zip(encoded, world.nodes, strict=True)
    ]
    sums = {node: added(SHARING, [each], QUERY.dimension) for node, each in enumerate(shares)}
    return from_ring(summation.combine(SHARING, sums, nodes=len(sums)).total)


@pytest.mark.parametrize("holder", [0, 1, 2, 11])
def test_all_shares_together_are_the_encoded_records_and_the_noise(
    world: World, spec: RoundSpec, holder: int
) -> None:
    drawn = iter([np.arange(3) - 10**12, np.arange(3) + 7, np.array([5])])
    encoded = contribute(world, spec, holder, noise=lambda part, count: next(drawn))
    expected = QUERY.encode(rows_at(world.records, 0, COLUMNS))
    noise = np.array([-(10**12), 1 - 10**12, 2 - 10**12, 7, 8, 9, 5])
    assert np.array_equal(opened(world, encoded), expected + noise)


def test_every_block_gets_noise_of_its_own_scale(world: World, spec: RoundSpec) -> None:
    ball = SecondMomentMatrix.model_validate(QUERY.model_dump() | {"radius": 1.0})
    spec = world.announce(world.submit(), query=ball, mu=0.1).body
    asked: list[tuple[NoisePart, int]] = []

    def recorded(part: NoisePart, count: int) -> Int64Vector:
        asked.append((part, count))
        return np.full(count, len(asked), np.int64)

    drawn = draw_noise(spec, 4, recorded, draws=2)
    *_, counting = ball.design("discrete_gaussian").blocks
    assert asked == [  # of four slots, so twice as large
        (GaussianPart(scale=2 * spec.noise.scale), 6),
        (GaussianPart(scale=2 * spec.noise.scale * np.sqrt(0.5)), 6),
        (GaussianPart(scale=2 * spec.noise.scale * counting.relative_scale), 2),
    ]
    assert drawn.tolist() == [[1, 1, 1, 2, 2, 2, 3]] * 2


def test_shares_of_laplace_noise_are_asked_for_as_many_parties_as_theorem_1_counts(
    spec: RoundSpec,
) -> None:
    laplace = spec.model_copy(update={"noise": DiscreteLaplaceNoise(scale=1e9)})
    asked: list[NoisePart] = []

    def recorded(part: NoisePart, count: int) -> Int64Vector:
        asked.append(part)
        return np.zeros(count, np.int64)

    draw_noise(laplace, 2, recorded)
    parties = spec.population_size - spec.dropouts - spec.colluders - 1
    relative = [block.relative_scale for block in spec.query.design("discrete_laplace").blocks]
    assert asked == [LaplacePart(scale=1e9 * each, parties=parties, slots=2) for each in relative]


def test_no_two_draws_share_noise(spec: RoundSpec) -> None:
    def sampler(part: NoisePart, count: int) -> Int64Vector:
        return np.arange(count) + int(part.scale) * 100

    drawn = draw_noise(spec, 1, sampler, draws=5)
    assert np.unique(drawn[:, :3]).size == 15
    assert np.unique(drawn[:, 3:6]).size == 15
    assert np.unique(drawn[:, 6]).size == 5


@pytest.mark.parametrize(
    "noise",
    [
        lambda part, count: np.zeros(count),
        lambda part, count: np.full(count, np.nan),
        lambda part, count: np.zeros(count, np.int32),
        lambda part, count: np.zeros(count - 1, np.int64),
        lambda part, count: np.zeros((count, 1), np.int64),
    ],
    ids=["floats", "not numbers", "32 bits", "too few", "another shape"],
)
def test_a_sampler_that_returns_anything_but_so_many_64_bit_integers_is_refused(
    world: World, spec: RoundSpec, noise
) -> None:
    with pytest.raises(ValueError, match="64-bit integers"):
        contribute(world, spec, 0, noise=noise)


@pytest.mark.parametrize(
    "query",
    [
        QUERY.model_copy(update={"records_per_client": 3}),
        *(make_query(kind, 4, records=3) for kind in (ScoreSum, ClassScoreSum, HazardScoreSum)),
    ],
    ids=lambda query: query.name,
)
def test_what_slots_contribute_together_is_the_sum_of_what_each_contributes(
    monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    """Of three records each at most; how many are worked out at once changes nothing."""
    generator = np.random.default_rng(5)
    values = in_data_units(query, generator.uniform(-1.2, 1.2, (9, 3, len(query.column_names))))
    present = generator.random((9, 3)) < 0.6
    expected = np.sum([query.encode(values[k][present[k]]) for k in range(9)], axis=0)
    filled = np.where(present[:, :, None], values, 0.0)
    for most in (1, 10, 27, 50, 1 << 20):
        monkeypatch.setattr(contribution, "MOST_ENTRIES", most)
        assert encoded_together(query, filled, present).tolist() == expected.tolist()
    assert not encoded_together(query, filled[:0], present[:0]).any()
