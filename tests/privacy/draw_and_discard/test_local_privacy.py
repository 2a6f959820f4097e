"""A contribution's local epsilon: records are sought that change steps most, and laws enumerated.

Distances are of steps as they leave `steps`, in integers, after cutting, clipping and rounding.
Laws are of what leaves `contribute`, for every integer that the noise can be.
"""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal_holder.crowds.contributor import noise_part
from shoal_protocol.crowds.tasks import LARGEST_WEIGHT, CrowdTask, contribute, design_rows, steps
from tests.privacy.draw_and_discard.test_hiding import make_task
from tests.privacy.sensitivity_search import EXTREME_FLOATS

FAMILIES = ("linear", "logistic", "poisson")
VARIANTS = ("one", "feature", "all")
CLIPPINGS = ("coordinate", "residual")

weights_of_any_size = st.lists(
    st.one_of(
        st.integers(-LARGEST_WEIGHT, LARGEST_WEIGHT),
        st.sampled_from([0, LARGEST_WEIGHT, -LARGEST_WEIGHT, 2**20, -(2**20)]),
    ),
    min_size=3,
    max_size=3,
)
records = st.lists(
    st.one_of(st.sampled_from(EXTREME_FLOATS), st.floats(-4.0, 4.0)), min_size=3, max_size=3
)


def steps_on(task: CrowdTask, weights: list[int], rows: np.ndarray) -> np.ndarray:
    design, targets = design_rows(task, rows)
    return steps(
        task,
        np.tile(np.array(weights, np.int64), (len(rows), 1)),
        design[:, None],
        targets[:, None],
    )


@settings(deadline=None, max_examples=150)
@given(
    family=st.sampled_from(FAMILIES),
    variant=st.sampled_from(VARIANTS),
    clipping=st.sampled_from(CLIPPINGS),
    clip=st.floats(1e-4, 2.0),
    rate=st.floats(1e-4, 1e6),
    weights=weights_of_any_size,
    pair=st.tuples(records, records),
)
def test_no_two_records_are_further_apart_than_twice_the_clip_on_any_weight(
    family, variant, clipping, clip, rate, weights, pair
) -> None:
    task = make_task(family, variant, weights=3, clipping=clipping, clip=clip, learning_rate=rate)
    one, other = steps_on(task, weights, np.array(pair)).tolist()
    for first, second in zip(one, other, strict=True):
        assert abs(first - second) <= 2 * task.lattice_clip
    reach = max(abs(step) for step in (*one, *other))
    assert reach <= task.lattice_clip


@settings(deadline=None, max_examples=150)
@given(
    family=st.sampled_from(FAMILIES),
    clipping=st.sampled_from(CLIPPINGS),
    clip=st.floats(1e-4, 2.0),
    rate=st.floats(1e-4, 1e6),
    weights=weights_of_any_size,
    clients=st.tuples(*[st.lists(records, min_size=1, max_size=4)] * 2),
)
def test_no_two_clients_are_further_apart_than_that_whatever_their_records_and_how_many(
    family, clipping, clip, rate, weights, clients
) -> None:
    task = make_task(family, weights=3, clipping=clipping, clip=clip, learning_rate=rate)
    task = task.model_copy(update={"records_per_client": 4})
    one, other = (
        steps(task, np.array(weights, np.int64), *design_rows(task, np.array(rows)))
        for rows in clients
    )
    assert np.abs(one - other).max() <= 2 * task.lattice_clip
    assert np.abs([one, other]).max() <= task.lattice_clip


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_a_step_on_several_records_is_their_mean_clipped_as_one(clipping: str) -> None:
    # residuals are .3 and -.2 at weights of zero, each beyond the clip; features are 1 and .5
    task = make_task(weights=1, clipping=clipping, clip=0.15, learning_rate=1.0)
    taken = steps(task, np.zeros(1, np.int64), np.array([[1.0], [0.5]]), np.array([0.3, -0.2]))
    exact = (0.3 - 0.1) / 2.0 if clipping == "coordinate" else (0.15 - 0.15 * 0.5) / 2.0
    assert abs(int(taken[0]) - exact * task.grid) <= 1.0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_a_search_reaches_twice_the_clip_on_every_weight(family: str, clipping: str) -> None:
    task = make_task(family, weights=3, clipping=clipping, clip=0.01, learning_rate=0.1)
    corners = np.array(list(itertools.product([-1.0, 1.0], [-1.0, 1.0], [-1.0, 0.0, 3.0])))
    found = np.zeros(3, np.int64)
    for weights in itertools.product([-(2**20), 0, 2**20], repeat=3):
        taken = steps_on(task, list(weights), corners)
        found = np.maximum(found, taken.max(axis=0) - taken.min(axis=0))
    assert found.tolist() == [2 * task.lattice_clip] * 3


def test_no_record_is_taken_for_granted_that_is_not_a_number() -> None:
    for wrong in math.nan, math.inf, -math.inf:
        with pytest.raises(ValueError, match="finite"):
            design_rows(make_task(weights=3), np.array([[0.0, wrong, 0.0]]))


def laws(task: CrowdTask, weights: list[int], scale: float) -> list[dict[tuple[int, ...], float]]:
    """Return the law of what is sent, for steps at the corners and in the middle of the clip.

    For noise of `scale`, on all weights that are touched, and every coordinate by lot.
    """
    p = task.dimension
    reach = 2 * task.lattice_clip + math.ceil(2.0 * scale)  # whatever can come of every step
    noises = np.arange(-reach, reach + 1)
    masses = np.exp(-np.abs(noises) / scale) * math.tanh(0.5 / scale)
    found = []
    for step in itertools.product([-task.lattice_clip, 0, task.lattice_clip], repeat=p):
        law: dict[tuple[int, ...], float] = defaultdict(float)
        for coordinate in range(p) if task.variant == "one" else [None]:
            chance = 1.0 / p if task.variant == "one" else 1.0
            for drawn in itertools.product(range(len(noises)), repeat=task.touched):
                noise = noises[list(drawn)]
                sent = contribute(
                    task,
                    np.array(weights, np.int64),
                    np.array(step, np.int64),
                    coordinate=coordinate,
                    noise=noise,
                )
                law[tuple(sent.tolist())] += chance * float(np.prod(masses[list(drawn)]))
        found.append(law)
    return found


def measured_epsilon(found: list[dict[tuple[int, ...], float]]) -> float:
    """Return the largest log-ratio of masses of what can come out whichever the record is."""
    common = set(found[0]).intersection(*found[1:])
    logs = np.log([[law[sent] for sent in common] for law in found])
    return float(np.max(logs.max(axis=0) - logs.min(axis=0)))


@pytest.mark.parametrize("l2", [0.0, 0.5])
@pytest.mark.parametrize("at", [0, 100, LARGEST_WEIGHT, -LARGEST_WEIGHT + 3])
@pytest.mark.parametrize("weights", [1, 3])
def test_one_weight_that_is_sent_costs_the_epsilon_and_not_more(
    at: int, weights: int, l2: float
) -> None:
    task = make_task(weights=weights, clip=1.0, grid_bits=4, epsilon=4.0, l2=l2)
    found = measured_epsilon(laws(task, [at] * weights, noise_part(task).scale))
    assert found <= task.contribution_epsilon
    if abs(at) < 1000:
        assert found > 0.999 * task.contribution_epsilon
    halved = measured_epsilon(laws(task, [at] * weights, task.noise_scale / 2.0))
    if abs(at) < 1000:
        assert halved > 1.99 * task.contribution_epsilon, "half the noise is found"


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["feature", "all"])
def test_all_weights_that_are_sent_cost_what_the_variant_says(variant: str) -> None:
    task = make_task(variant=variant, weights=2, clip=1.0, grid_bits=4, epsilon=6.0)
    if variant == "all":
        task = task.model_copy(update={"epsilon": 12.0})
    found = measured_epsilon(laws(task, [0, 0], noise_part(task).scale))
    assert 0.999 * task.contribution_epsilon < found <= task.contribution_epsilon


def test_whatever_the_trainer_serves_the_price_is_the_same() -> None:
    # weights that no honest instance could have: steps are clipped all the same
    task = make_task("poisson", weights=3, clip=1.0, grid_bits=4, learning_rate=1e6)
    for weights in itertools.product([LARGEST_WEIGHT, -LARGEST_WEIGHT], repeat=3):
        rows = np.array([[1.0, 1.0, 3.0], [-1.0, -1.0, 0.0], [1.0, -1.0, 3.0]])
        assert np.abs(steps_on(task, list(weights), rows)).max() <= task.lattice_clip
