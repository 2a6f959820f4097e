"""What the demo shows at its end: twelve lines, a picture and a summary."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import matplotlib
import numpy as np
from numpy.typing import NDArray

from demo.diabetes import DELTA, EPSILON, FEATURES, Patients
from shoal_studies.catalogue.linear_regression import LinearRegressionPosterior
from shoal_studies.posterior_report import PosteriorReport

matplotlib.use("Agg")  # a picture for a file: no screen needed

from matplotlib import pyplot

FloatArray = NDArray[np.float64]
LEVEL: Final = 0.9
Z_SCORE: Final = 1.6449  # half of a 90 % interval, in standard deviations


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
class Coefficient:
    """A coefficient in the data's units: its posterior, and least squares without privacy."""

    mean: float
    sd: float
    low: float
    """Bounds of the 90 % interval."""
    high: float
    nonprivate: float
    nonprivate_sd: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval shows an effect."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The demo's figures. Errors are mean absolute errors on patients who took no part."""

    clients: int
    compute_nodes: int
    dropped_clients: int
    cohort_size: int
    epsilon: float
    """As the analyst asked for."""
    delta: float
    coefficients: dict[str, Coefficient]
    caution: str | None
    mae_private: float
    mae_nonprivate: float
    mae_trivial: float
    held_out: int
    seconds: float
    timings: dict[str, float]

    @classmethod
    def of(
        cls,
        data: Patients,
        report: PosteriorReport,
        *,
        compute_nodes: int,
        dropped_clients: int,
        timings: Mapping[str, float],
    ) -> Self:
        """Compare what the job released with what pooling all records would give.

        Raises:
            TypeError: the job was no linear regression.
        """
        posterior = report.posterior
        if not isinstance(posterior, LinearRegressionPosterior):
            raise TypeError("the demonstration learns a linear regression")
        training, unseen = data.asked_for(data.training), data.asked_for(data.held_out)
        fit = Fit.of(training[:, :-1], training[:, -1])

        def error(prediction: FloatArray) -> float:
            return float(np.mean(np.abs(prediction - unseen[:, -1])))

        figures = zip(
            posterior.mean.tolist(),
            posterior.sd.tolist(),
            *posterior.interval(LEVEL).T.tolist(),
            fit.coefficients.tolist(),
            fit.sd.tolist(),
            strict=True,
        )
        return cls(
            clients=len(training),
            compute_nodes=compute_nodes,
            dropped_clients=dropped_clients,
            cohort_size=report.cohort_sizes[-1],
            epsilon=EPSILON,
            delta=DELTA,
            coefficients={
                name: Coefficient(*each)
                for name, each in zip(posterior.names, figures, strict=True)
            },
            caution=posterior.caution,
            mae_private=error(posterior.predict(unseen[:, :-1])[0]),
            mae_nonprivate=error(fit.predict(unseen[:, :-1])),
            mae_trivial=error(training[:, -1].mean(keepdims=True)),
            held_out=len(unseen),
            seconds=round(sum(timings.values()), 1),
            timings={what: round(seconds, 1) for what, seconds in timings.items()},
        )

    def write(self, path: Path) -> None:
        """Write the figures as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    def lines(self) -> Sequence[str]:
        """Return the result as a reader should meet it, in ten lines and perhaps a caution."""
        told = [
            f"{self.clients} patients, each a client; {self.dropped_clients} were lost with their "
            f"clinic, {self.cohort_size} counted.",
            f"{self.compute_nodes} Compute nodes, one killed in mid-round: none of them saw a "
            "patient's record.",
            f"Each patient's price: ε = {self.epsilon:g}, δ = {self.delta:g}.",
            "",
            f"{'Progression after a year, by':<31}{'private, 90 % interval':>24}"
            f"{'without privacy':>25}",
        ]
        for feature in FEATURES:
            each, step = self.coefficients[feature.bounds.name], feature.step
            private = f"{each.mean * step:+.1f}  [{each.low * step:+.1f}, {each.high * step:+.1f}]"
            seen = "" if each.excludes_zero else "unclear"
            told.append(
                f"  {feature.difference:<31}{private:>22} {seen:<9}{each.nonprivate * step:>+15.1f}"
            )
        told.append(
            f"Error on {self.held_out} other patients: {self.mae_private:.1f}; without privacy "
            f"{self.mae_nonprivate:.1f}; guessing the mean {self.mae_trivial:.1f}."
        )
        return [*told, f"CAUTION: {self.caution}"] if self.caution else told

    def draw(self, path: Path) -> None:
        """Draw the intervals of all features' differences, with privacy and without."""
        steps = np.array([feature.step for feature in FEATURES])
        shown = [self.coefficients[feature.bounds.name] for feature in FEATURES]
        rows = np.arange(len(shown))
        figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
        for label, shift, mark, colour, middles, sds in (
            (
                f"private (ε = {self.epsilon:g}): records stayed where they were",
                *(-0.1, "o", "C0"),
                np.array([each.mean for each in shown]),
                np.array([each.sd for each in shown]),
            ),
            (
                "without privacy: all records pooled",
                *(0.1, "s", "0.5"),
                np.array([each.nonprivate for each in shown]),
                np.array([each.nonprivate_sd for each in shown]),
            ),
        ):
            axes.errorbar(
                middles * steps,
                rows + shift,
                xerr=Z_SCORE * sds * steps,
                fmt=mark,
                color=colour,
                label=label,
            )
        axes.axvline(0, color="0.8", zorder=0)
        axes.set_yticks(rows, [feature.difference for feature in FEATURES])
        axes.set_ylim(len(shown) - 0.5, -0.5)  # the first on top
        axes.set_title(f"What goes with diabetes getting worse, in {self.cohort_size} patients")
        axes.set_xlabel(
            "change in disease progression after one year, in points, with 90 % intervals"
        )
        figure.legend(loc="outside lower center", ncols=2)
        figure.savefig(path, dpi=120)
        pyplot.close(figure)
