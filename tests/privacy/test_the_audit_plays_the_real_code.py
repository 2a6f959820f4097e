"""The audit's long vectors are the rounds that services run: same shares, sums and totals."""

import asyncio
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from audit import crowd_scenarios, scenarios
from audit.contributions import DRAWN, both_steps, submitted
from audit.game import VICTIM, Adversary, Game, answer, node_sum, play, total_of
from audit.neighbours import worst_neighbours
from shoal_aggregator.aggregator import Summed, add_up
from shoal_holder.contribution import draw_noise, seal_contribution
from shoal_holder.crowds.contributor import Crowd, make_submission
from shoal_holder.crowds.contributor import draw_noise as draw_noise_of
from shoal_holder.noise import exact_noise
from shoal_protocol.crowds.tasks import Variant
from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.queries import Column, SecondMomentMatrix
from shoal_protocol.rounds.attestations import PartialSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.received import parse
from shoal_protocol.sharing.shares import Share, from_ring
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from tests.world import examples
from tests.world.audit import look_at
from tests.world.chance import fixed_bytes
from tests.world.crowd_examples import CONTRIBUTOR, CROWD_CONSORTIUM, CROWD_JOB, DRAW, OPENING
from tests.world.examples import PLACE
from tests.world.federation import Federation
from tests.world.trust import SITES, Trust, make_trust

RUNS = 4
SPECS = [
    examples.spec(query=scenarios.matrix_in_a_ball()),
    examples.spec(
        manifest=examples.THRESHOLD_CONSORTIUM,
        query=scenarios.matrix_in_a_ball(),
        sharing=examples.THRESHOLD,
    ),
]


def envelopes(
    spec: RoundSpec, client: int, records: np.ndarray, noise: np.ndarray, label: str
) -> list[Share]:
    """Return what the nodes find in a client's envelopes."""
    sealed = seal_contribution(
        spec,
        [examples.box_key(node) for node in range(examples.NODES)],
        client,
        examples.client_key(client),
        spec.query.encode(records),
        noise,
        random_bytes=fixed_bytes(label),
    )
    return [
        parse(each).open(examples.box_private_key(node), examples.box_key(node))
        for node, each in enumerate(sealed)
    ]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.sharing.scheme)
def test_with_the_same_randomness_a_run_has_the_shares_of_real_envelopes(spec: RoundSpec) -> None:
    for world, records in enumerate(worst_neighbours(spec.query)):
        for client in (0, 1, 5):
            label = f"world {world} client {client}"
            noise = draw_noise(spec, 1, exact_noise)
            begun = fixed_bytes(label)
            begun(32)  # an envelope draws bytes for the answer's id first
            shares = answer(spec, client, records, noise, random_bytes=begun)
            assert shares == envelopes(spec, client, records, noise[0], label)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.sharing.scheme)
def test_many_runs_at_once_have_the_totals_of_as_many_rounds(spec: RoundSpec) -> None:
    cohort = range(spec.minimum_cohort)
    records = worst_neighbours(spec.query)
    noises = [draw_noise(spec, 1, exact_noise, draws=RUNS) for _ in cohort]
    at_once = total_of(
        spec,
        [answer(spec, client, records[client % 2], noises[client]) for client in cohort],
        RUNS,
    )
    for run in range(RUNS):
        opened = [
            envelopes(spec, client, records[client % 2], noises[client][run], f"{run} {client}")
            for client in cohort
        ]
        sums = [
            PartialSum(
                manifest=spec.manifest,
                round=spec.digest,
                node=name,
                cohort="0" * 64,
                cohort_size=len(cohort),
                values=encode_uint64(node_sum(spec, [each[node] for each in opened], 1)),
                charge=examples.charge(spec, name),
                entry=PLACE,
            )
            for node, name in enumerate(spec.compute_nodes)
        ]
        summed = add_up(spec, sums)
        assert isinstance(summed, Summed)
        assert np.array_equal(from_ring(decode_uint64(summed.result.values)), at_once[run])


class Remembering:
    """The real sampler, of which one knows afterwards what it drew."""

    def __init__(self) -> None:
        self.drawn: list[np.ndarray] = []

    def __call__(self, part: NoisePart, count: int) -> np.ndarray:
        self.drawn.append(exact_noise(part, count))
        return self.drawn[-1]

    def noise(self, spec: RoundSpec) -> np.ndarray:
        sizes = [coordinates for coordinates, _ in spec.noise_blocks()]
        assert [len(each) for each in self.drawn] == sizes, "a holder draws once in a round"
        return np.concatenate(self.drawn)


async def learned(trust: Trust, directory: Path, samplers: dict[str, Remembering]) -> Any:
    """Return the spec and the total of a job's round in a whole federation."""
    async with Federation(trust, directory) as federation:
        for site, sampler in samplers.items():
            await federation.crash(site)
            federation.noise[site] = sampler
        [round_id] = (await federation.learn()).rounds
        released = await federation.result(round_id)
        assert released is not None
        return look_at(federation).specs[round_id], from_ring(decode_uint64(released["values"]))


@pytest.mark.slow
def test_a_whole_federation_releases_what_the_audit_computes_from_the_same_noise(
    tmp_path: Path,
) -> None:
    trust = make_trust(tmp_path / "trust")
    samplers = {site: Remembering() for site in SITES}
    spec, total = asyncio.run(learned(trust, tmp_path / "data", samplers))
    shares: list[list[Share]] = []
    for holder, site in enumerate(SITES):
        records, noise = trust.records(site).values, samplers[site].noise(spec)
        whole = spec.query.model_copy(update={"records_per_client": len(records)})
        of_all = spec.model_copy(update={"query": whole})
        shares.append(answer(of_all, holder, records, noise[np.newaxis]))
    assert np.array_equal(total_of(spec, shares, 1)[0], total)


def test_neighbours_that_do_not_attain_the_sensitivity_are_not_played() -> None:
    columns = tuple(Column(name=name, centre=0.0, scale=1.0) for name in "xyz")
    odd = SecondMomentMatrix(
        columns=columns, intercept=0.0, radius=None, grid_bits=12, records_per_client=1
    )  # in an odd number of columns no half of the signs can be turned
    honest = scenarios.honest(1.0, 1).game
    spec = scenarios.Rounds.under(delta=honest.claim.delta).spec(
        odd, cost=honest.spec.cost, population=4, dropouts=1, colluders=1
    )
    game = Game.honest(spec, delta=honest.claim.delta)
    with pytest.raises(ValueError, match="do not attain"):
        play(game, 0, 1)


@pytest.mark.slow
def test_in_each_world_the_statistic_has_the_mean_and_spread_that_its_adversary_leaves() -> None:
    # 20,000 runs: each mean and spread within 6 standard errors, false alarm below 1e-7.
    game = scenarios.honest(3.0, 1).game
    noises = {Adversary.PUBLIC: 3, Adversary.COALITION: 2, Adversary.WORST_CASE: 1}
    for world in range(2):
        for adversary, statistic in play(game, world, 20_000).items():
            spread = np.sqrt(noises[adversary])
            assert abs(statistic.mean() - world * game.claim.mu) < 6 * spread / np.sqrt(20_000)
            assert abs(statistic.std() / spread - 1.0) < 6 / np.sqrt(2 * 20_000)
    assert VICTIM not in game.colluders


@pytest.mark.parametrize("variant", get_args(Variant))
def test_a_contribution_that_is_played_is_what_a_submission_carries(variant: Variant) -> None:
    game = crowd_scenarios.honest(1.0, 1, variant=variant).game
    task = game.task
    request = CROWD_JOB.model_copy(update={"task": task})
    opening = OPENING.model_copy(update={"instances": (tuple(DRAWN.tolist()),) * task.instances})
    crowd = Crowd(request=request, opening=opening, consortium=CROWD_CONSORTIUM)
    draw = examples.named("trainer", DRAW.model_copy(update={"weights": tuple(DRAWN.tolist())}))
    noise = draw_noise_of(task, RUNS, game.sampler)
    for step in both_steps(task):
        for run in range(RUNS):
            chance = fixed_bytes(f"coordinate of run {run}")
            submission = make_submission(
                crowd,
                draw,
                CONTRIBUTOR,
                examples.client_key(CONTRIBUTOR),
                step,
                noise=noise[run],
                random_bytes=fixed_bytes(f"coordinate of run {run}"),
            )
            [played] = submitted(task, step, noise[[run]], random_bytes=chance)
            assert submission.body.weights == tuple(played.tolist())
