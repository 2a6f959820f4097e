"""Histograms: the task, its posterior, how often intervals hold, and a job over all services."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest

from shoal import SimulatedFederation
from shoal.estimators import Histogram
from shoal.jobs.task_files import read_task_file
from shoal_learning.learners import learner_for
from shoal_learning.simulation import Federation as Setting
from shoal_learning.simulation import run
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.studies.cells import CategoricalTask, HistogramPosterior, HistogramTask
from shoal_protocol.studies.study import check_round_rules, check_terms_of_task
from shoal_protocol.wire.errors import RefusedJob, RefusedSpec
from tests.command.running import shoal
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, make_trust

EDGES = (18.0, 30.0, 45.0, 60.0, 75.0, 90.0, 100.0)
MIDDLES = np.array([(lower + upper) / 2.0 for lower, upper in pairwise(EDGES)])
TASK = HistogramTask(column="age", edges=EDGES)


def released(task: HistogramTask | CategoricalTask, counts: list[int], sd: float) -> ReleasedSum:
    """Return a sum that is these counts, with noise of `sd` records."""
    query = task.query()
    values = np.array([*counts, sum(counts)]) * query.grid
    return ReleasedSum(
        query=query,
        values=values.astype(np.int64),
        cohort_size=sum(counts),
        noise_sd=np.full(query.dimension, sd * query.grid),
        mechanism="discrete_gaussian",
    )


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ((0.0, 1.0), "at least 3"),
        ((0.0, 2.0, 1.0), "larger than the one before"),
        ((0.0, 1.0, 1.0), "larger than the one before"),
        ((0.0, 1.0, math.inf), "finite"),
        (tuple(map(float, range(258))), "at most 257"),
    ],
)
def test_edges_that_make_no_bins_are_refused(edges: tuple[float, ...], said: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=said):
        HistogramTask(column="age", edges=edges)


def test_a_round_is_held_to_the_tasks_own_edges() -> None:
    other = TASK.model_copy(update={"edges": (18.0, 31.0, *EDGES[2:])})
    asked: dict[str, Any] = {"number": 0, "population": 20, "earlier": ()}
    check_round_rules(TASK.query(), TASK, **asked)
    with pytest.raises(RefusedSpec):
        check_round_rules(other.query(), TASK, **asked)
    with pytest.raises(RefusedJob):
        check_terms_of_task(other.terms(least=10, most=20), TASK, least=10, most=20)


def test_without_noise_the_posterior_is_the_dirichlet_distribution() -> None:
    counts = [5, 0, 20, 40, 3, 1]
    posterior = learner_for(TASK).next(69, [released(TASK, counts, sd=0.01)])
    alphas = np.array(counts) + 1.0
    shares = alphas / alphas.sum()
    np.testing.assert_allclose(posterior.mean, shares, rtol=1e-9)
    np.testing.assert_allclose(posterior.sd, np.sqrt(shares * (1 - shares) / (alphas.sum() + 1)))


def test_bins_are_learned_as_levels_are() -> None:
    levels = CategoricalTask(column="age", levels=tuple(MIDDLES), other=False)
    counts = [5, 0, 20, 40, 3, 1]
    of_bins, of_levels = (
        learner_for(task).next(69, [released(task, counts, sd=4.0)]) for task in (TASK, levels)
    )
    np.testing.assert_array_equal(of_bins.interval(0.9), of_levels.interval(0.9))


def test_a_posterior_that_names_other_bins_is_refused() -> None:
    posterior = learner_for(TASK).next(69, [released(TASK, [5, 0, 20, 40, 3, 1], sd=0.1)])
    assert isinstance(posterior, HistogramPosterior)
    np.testing.assert_allclose(posterior.density() @ np.diff(EDGES), 1.0)
    with pytest.raises(pydantic.ValidationError, match="names must be those of the bins"):
        HistogramPosterior(**{**dict(posterior), "edges": (0.0, *EDGES[1:])})


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-5, 0.0], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("clients", [60, 400])
def test_intervals_hold_as_often_as_they_say(clients: int, delta: float) -> None:
    """Probabilities are drawn from the prior, and any number of clients has no record.

    With half a record of prior for each bin many bins are empty. 200 independent intervals at 90 %:
    163 to 195 of them hold but with probability 1e-4 (binomial), if the posterior is right.
    """
    task = TASK.model_copy(update={"concentration": 0.5})
    setting = Setting(
        population=clients, missing=3, dropouts=5, colluders=5, epsilon=2.0, delta=delta
    )
    generator = np.random.default_rng(clients)
    hold = 0
    for _ in range(200):
        truth = generator.dirichlet(np.full(len(MIDDLES), 0.5))
        held = int(generator.integers(clients - 3 + 1))
        records = np.full((clients, 1), np.nan)
        records[3 : 3 + held, 0] = generator.choice(MIDDLES, held, p=truth)
        posterior = run(learner_for(task), records, setting, generator).posterior
        chosen = generator.integers(len(MIDDLES))
        low, high = posterior.interval(0.9)[chosen]
        hold += int(low <= truth[chosen] <= high)
    assert 163 <= hold <= 195


def test_an_estimator_learns_it_on_a_simulated_federation() -> None:
    generator = np.random.default_rng(1)
    ages = np.array([5.0, *np.clip(generator.normal(55.0, 15.0, 597), 18.0, 99.0), 120.0, np.nan])
    crowd = SimulatedFederation(
        {"age": ages}, epsilon=20.0, delta=1e-5, dropouts=5, colluders=5, seed=2
    )
    model = Histogram(column="age", edges=EDGES).fit(crowd)
    shares = np.bincount(np.digitize(ages[:-1], EDGES[1:-1]), minlength=6) / 599  # none is left out
    np.testing.assert_allclose(model.posterior_.mean, shares, atol=0.02)
    assert model.posterior_.names[0] == "[18, 30)"
    outside = model.score_samples([-1e9, 18.0, 29.9, 1e9])
    np.testing.assert_array_equal(outside[:3], outside[0])
    assert outside[3] == np.log(model.posterior_.mean[-1])
    assert "[75, 90)" in str(model.summary()) and model.plot().has_data()
    with pytest.raises(ValueError, match="edges"):
        Histogram(column="age", edges=[1, 0, 2]).fit(crowd)


async def test_a_job_from_a_task_file_is_learned_and_certified(tmp_path: Path) -> None:
    """Over all services and HTTP; the certificate is checked by the command, with the manifest."""
    (tmp_path / "task.toml").write_text(shoal("job", "example", "--task", "histogram").stdout)
    task = read_task_file(tmp_path / "task.toml").task
    trust = make_trust(tmp_path / "trust", queries=("bin_counts",))
    policy = HOLDER_POLICY.model_copy(update={"queries": ("bin_counts",)})
    holders = {site: {"policy": policy} for site in SITES}
    async with Federation(trust, tmp_path / "services", holders=holders) as federation:
        job = await federation.submit(task=task)
        assert (await federation.finish(job))["phase"] == "finished"
        report = await federation.report(job)
        encoded = await federation.after(federation.analyst.job(job).certificate())
    assert isinstance(report.posterior, HistogramPosterior)
    assert report.cohort_sizes == (sum(SITES.values()),)
    assert "[18, 30)" in str(report.summary())
    certificate, manifest = tmp_path / "certificate.json", tmp_path / "manifest.json"
    manifest.write_bytes(trust.consortium.signed_manifest.encode())
    certificate.write_bytes(encoded)
    said = shoal("certificate", "verify", certificate, "--manifest", manifest).stdout
    assert "A posterior of histogram on the columns age" in " ".join(said.split())
    certificate.write_bytes(encoded.replace(b'"edges":[18', b'"edges":[19'))
    assert certificate.read_bytes() != encoded
    shoal("certificate", "verify", certificate, "--manifest", manifest, status=1)
