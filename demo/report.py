"""What the demo shows at its end: tables, a picture and a summary; it runs nothing."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from shoal_protocol.posteriors import Posterior

matplotlib.use("Agg")  # a picture for a file: no screen needed

from matplotlib import pyplot

FloatArray = NDArray[np.float64]
LEVEL = 0.9
Z_SCORE = 1.6449  # half of a 90 % interval, in standard deviations


@dataclass(frozen=True)
class Fit:
    """Least squares on the pooled records: what one could do without any privacy."""

    coefficients: FloatArray  # (k,), the intercept first
    sd: FloatArray  # (k,)

    @classmethod
    def of(cls, rows: FloatArray, target: FloatArray) -> "Fit":
        """Fit `target`, shape (n,), on `rows`, shape (n, m), and a constant."""
        design = np.column_stack([np.ones(len(rows)), rows])
        coefficients = np.linalg.solve(design.T @ design, design.T @ target)
        residuals = target - design @ coefficients
        variance = residuals @ residuals / (len(target) - design.shape[1])
        covariance = variance * np.linalg.inv(design.T @ design)
        return cls(coefficients, np.sqrt(np.diagonal(covariance)))

    def predict(self, rows: FloatArray) -> FloatArray:
        """Return the predictions, shape (n,), for `rows`, shape (n, m)."""
        prediction: FloatArray = np.column_stack([np.ones(len(rows)), rows]) @ self.coefficients
        return prediction


@dataclass(frozen=True)
class Summary:
    """The demo's figures. Errors are mean absolute errors on patients who took no part."""

    clients: int
    compute_nodes: int
    dropped_clients: int
    cohort_size: int
    epsilon: float
    delta: float
    mae_private: float
    mae_nonprivate: float
    mae_trivial: float
    seconds: float

    def write(self, path: Path) -> None:
        """Write the figures as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


def mean_absolute_error(prediction: FloatArray, truth: FloatArray) -> float:
    """Return the mean absolute difference of two vectors of shape (n,)."""
    return float(np.mean(np.abs(prediction - truth)))


def show(
    console: Console,
    posterior: Posterior,
    fit: Fit,
    summary: Summary,
    timings: dict[str, float],
) -> None:
    """Print the posterior beside the fit without privacy, the errors, the price and timings."""
    table = Table(title="Disease progression after one year, by coefficient")
    table.add_column("coefficient")
    for heading in ("posterior mean", "sd", "90 % interval", "without privacy", "sd"):
        table.add_column(heading, justify="right")
    for name, mean, sd, (low, high), plain, plain_sd in zip(
        posterior.names,
        posterior.mean,
        posterior.sd,
        posterior.interval(LEVEL),
        fit.coefficients,
        fit.sd,
        strict=True,
    ):
        interval = f"[{low:.2f}, {high:.2f}]"
        table.add_row(
            name, f"{mean:.2f}", f"{sd:.2f}", interval, f"{plain:.2f}", f"{plain_sd:.2f}",
            style=None,
        )  # fmt: skip
    console.print(table)
    errors = Table(title="Mean absolute error on patients who took no part")
    errors.add_column("predictor")
    errors.add_column("error", justify="right")
    errors.add_row("private posterior mean", f"{summary.mae_private:.1f}")
    errors.add_row("least squares without privacy", f"{summary.mae_nonprivate:.1f}")
    errors.add_row("always the mean (trivial)", f"{summary.mae_trivial:.1f}")
    console.print(errors)
    facts = Table(title="What it took", show_header=False)
    facts.add_row("clients, one patient each", str(summary.clients))
    facts.add_row("dropped out", str(summary.dropped_clients))
    facts.add_row("cohort that was summed", str(summary.cohort_size))
    facts.add_row("privacy spent, per patient", f"ε = {summary.epsilon:.3g}, δ = {summary.delta:g}")
    for what, seconds in timings.items():
        facts.add_row(what, f"{seconds:.1f} s")
    console.print(facts)


def draw(posterior: Posterior, fit: Fit, path: Path) -> None:
    """Draw both sets of 90 % intervals, in units of the non-private standard deviations."""
    names = posterior.names[1:]
    scale = fit.sd[1:]
    rows = np.arange(len(names))
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    axes.errorbar(
        posterior.mean[1:] / scale,
        rows - 0.12,
        xerr=Z_SCORE * posterior.sd[1:] / scale,
        fmt="o",
        label="private posterior",
    )
    axes.errorbar(
        fit.coefficients[1:] / scale,
        rows + 0.12,
        xerr=Z_SCORE,
        fmt="s",
        color="0.5",
        label="least squares without privacy",
    )
    axes.axvline(0, color="0.8", zorder=0)
    axes.set_yticks(rows, names)
    axes.invert_yaxis()
    axes.set_xlabel("coefficient with 90 % interval, in non-private standard deviations")
    figure.legend(loc="outside upper center", ncols=2)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
