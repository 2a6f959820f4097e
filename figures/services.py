"""One point of each figure over real services, compared with the simulator.

Three Compute nodes, an aggregator, a trainer and the data holder's agent run in processes of their
own, TLS on every link; each row is a client with a key of its own.
"""

import csv
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.stats import chi2

from demo.quickstart import agent, first_agent_port, quickstart
from figures import ours
from figures.authors import DELTA
from figures.checks import Finding
from figures.datasets import Gdsc, Split, gdsc_split, load_uci, scaled, splits
from figures.running import run_all
from figures.scores import Floats, rank_correlation
from figures.sources import Files
from shoal import Analyst, JobSettings
from shoal_consortium.processes import Federation, Process
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior, RegressionTask
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.registry import learner_for

COMPUTE_NODES: Final = 3
SIMULATED: Final = 399
"""Simulated runs that the real one must lie among: outside all of them is 1 in 200 by chance."""

NOISE_FALSE_ALARM: Final = 0.001
SECONDS: Final = 600
RED_EPSILON, GDSC_EPSILON = 10.0**0.5, 5.0
SEED: Final = 2019


@dataclass(frozen=True, kw_only=True)
class Point:
    """One job: who holds the rows, what is asked at what price, and how it is scored."""

    site: str
    task: RegressionTask
    split: Split
    epsilon: float
    score: Callable[[Floats, Floats], float]  # of predictions and truth on the test rows

    def scored(self, posterior: ours.LinePosterior) -> float:
        """Return the score of a posterior on the test rows."""
        predicted, _ = posterior.predict(self.split.test[:, :-1])
        return self.score(predicted, self.split.test[:, -1])


def red_wine(files: Files) -> Point:
    """Return Figure 2's point: red wine's first split, 1000 clients."""
    rows = scaled(load_uci("red_wine", files, as_authors=True))
    return Point(
        site="red-wine",
        task=ours.uci_task(rows.shape[1] - 1),
        split=splits("red_wine", rows, 1)[0],
        epsilon=RED_EPSILON,
        score=absolute_error,
    )


def one_drug(data: Gdsc) -> Point:
    """Return Figure 3's point: the drug measured on most cell lines, in its first split."""
    drug = max(data.drugs, key=lambda each: len(data.rows(each)))
    return Point(
        site="cell-lines",
        task=ours.gdsc_task(len(data.genes)),
        split=gdsc_split(data.rows(drug), 0),
        epsilon=GDSC_EPSILON,
        score=rank_correlation,
    )


def absolute_error(predicted: Floats, truth: Floats) -> float:
    """Return the mean absolute difference of two vectors of one shape."""
    return float(np.abs(predicted - truth).mean())


def run(
    directory: Path,
    points: list[Point],
    *,
    processes: int,
    say: Callable[[str], None],
    simulated: int = SIMULATED,
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Run the points' jobs in `directory` and return what is to be written, and what was found.

    Raises:
        RuntimeError: a process did not start, or a job did not end well.
    """
    directory.mkdir(parents=True)
    services = _quickstart(directory, points)
    port = first_agent_port(services)
    agents = [_agent(directory, each, port + place) for place, each in enumerate(points)]
    written, findings = [], []
    with Federation() as federation:
        federation.start(*services, *agents)
        home = directory / "federation"
        analyst = Analyst.open(home / "parties" / "analyst", home / "consortium")
        for point in points:
            say(f"{point.site}: {len(point.split.train)} clients, epsilon {point.epsilon:.4g}")
            begun = time.monotonic()
            report, certificate = _learn(analyst, point)
            seconds = time.monotonic() - begun
            manifest = (home / "consortium" / "manifest.json").read_bytes()
            sums = _sums(verify_certificate(certificate, manifest).certificate.rounds)
            facts, judged = compare(
                point, _regression(report), sums, processes=processes, simulated=simulated
            )
            paid = {"epsilon spent": report.privacy.epsilon, "delta": report.privacy.delta}
            written.append(facts | paid | {"seconds": round(seconds, 1)})
            findings += judged
    return written, findings


def compare(
    point: Point,
    posterior: MeasuredRegressionPosterior,
    sums: list[ReleasedSum],
    *,
    processes: int,
    simulated: int,
) -> tuple[dict[str, Any], list[Finding]]:
    """Compare a job's posterior, and the sums in its certificate, with the simulator."""
    here = learner_for(point.task).next(len(point.split.train), sums)
    same = isinstance(here, MeasuredRegressionPosterior) and all(
        np.allclose(getattr(here, part), getattr(posterior, part), rtol=1e-9, atol=0.0)
        for part in ("mean", "covariance_matrix", "scatter")
    )
    score = point.scored(posterior)
    units = [(point, (SEED, number)) for number in range(simulated)]
    others = np.array(run_all(_simulated, units, f"simulating {point.site}", processes=processes))
    squares, entries = _noise(point, sums)
    p_value = float(chi2.cdf(squares, entries))
    facts = {
        "site": point.site,
        "purpose": point.task.purpose,
        "clients": len(point.split.train),
        "compute nodes": COMPUTE_NODES,
        "rounds": len(sums),
        "epsilon claimed": point.epsilon,
        "score": score,
        "simulated": {
            "runs": simulated,
            "smallest": float(others.min()),
            "median": float(np.median(others)),
            "largest": float(others.max()),
            "below the real one": int(np.count_nonzero(others < score)),
        },
        "same posterior from the certificate's sums": same,
        "noise": {"squares": squares, "entries": entries, "quantile": p_value},
    }
    findings = [
        Finding(
            rule=f"{point.site}: the learner makes of the certificate's sums what was reported",
            holds=same,
            detail=f"{len(sums)} sums, {entries} entries",
        ),
        Finding(
            rule=f"{point.site}: the real score lies among {simulated} simulated ones",
            holds=bool(others.min() <= score <= others.max()),
            detail=f"{score:.4f} in [{others.min():.4f}, {others.max():.4f}]",
        ),
        Finding(
            rule=f"{point.site}: the sums' noise is as large as stated",
            holds=NOISE_FALSE_ALARM / 2 <= p_value <= 1.0 - NOISE_FALSE_ALARM / 2,
            detail=f"mean square {squares / entries:.3f} of {entries}, quantile {p_value:.3f}",
        ),
    ]
    return facts, findings


def _regression(report: PosteriorReport) -> MeasuredRegressionPosterior:
    if not isinstance(report.posterior, MeasuredRegressionPosterior):
        raise RuntimeError("the job was a regression, and its posterior is not")
    return report.posterior


def _simulated(unit: tuple[Point, tuple[int, ...]]) -> float:
    point, seed = unit
    fitted = ours.fit(
        point.task,
        point.split.train,
        epsilon=point.epsilon,
        delta=DELTA,
        generator=np.random.default_rng(seed),
    )
    return point.scored(fitted.posterior)


def _noise(point: Point, sums: list[ReleasedSum]) -> tuple[float, int]:
    """Return the sum of squares of the released sums' noise in its stated sd, and of how many."""
    squares, entries = 0.0, 0
    for released in sums:
        query, rows = released.query, point.split.train
        exact = np.sum([query.encode(row[None]) for row in rows], axis=0)
        squares += float((((released.values - exact) / released.noise_sd) ** 2).sum())
        entries += len(exact)
    return squares, entries


def _sums(rounds: Any) -> list[ReleasedSum]:
    return [ReleasedSum.of(each.spec.body, each.result.body) for each in rounds]


def _learn(analyst: Analyst, point: Point) -> tuple[PosteriorReport, bytes]:
    clients = len(point.split.train)
    job = analyst.submit(
        point.task,
        JobSettings(
            epsilon=point.epsilon,
            delta=DELTA,
            dropouts=0,
            colluders=0,
            minimum_population=clients,
            maximum_population=clients,
            join_seconds=SECONDS,
            round_seconds=SECONDS,
            grace_seconds=SECONDS,
        ),
    )
    report, certificate = job.wait(), job.certificate()
    if certificate is None:
        raise RuntimeError("the job is finished, and has no certificate")
    return report, certificate


def _quickstart(directory: Path, points: list[Point]) -> list[Process]:
    """Make a federation whose sites are the points'; return its services, not started."""
    highest = max(point.epsilon for point in points)
    return quickstart(
        directory / "federation",
        clients={point.site: len(point.split.train) for point in points},
        nodes=COMPUTE_NODES,
        options=[
            *(
                "--minimum-cohort",
                "2",
                "--minimum-colluders",
                "0",
                "--colluding-holders",
                "0",
                "--minimum-holders",
                "1",
            ),
            *("--maximum-epsilon", str(highest + 1.0), "--delta", str(DELTA)),
        ],
        logs=directory,
    )


def _agent(directory: Path, point: Point, port: int) -> Process:
    """Lay down a site's records and policy; return its agent, not started."""
    names = [column.name for column in point.task.columns]
    records, policy = directory / f"{point.site}.csv", directory / f"{point.site}.toml"
    with records.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *names])
        writer.writerows([line, *row] for line, row in enumerate(point.split.train.tolist()))
    policy.write_text(
        f"""\
analysts = ["analyst"]
queries = {json.dumps(point.task.query_names())}
columns = {json.dumps(names)}
approval = "automatic"
maximum_epsilon = {point.epsilon + 1.0}
delta = {DELTA}
minimum_population = {len(point.split.train)}
minimum_colluders = 0
"""
    )
    home = directory / "federation"
    return agent(home, point.site, port=port, records=records, policy=policy, logs=directory)
