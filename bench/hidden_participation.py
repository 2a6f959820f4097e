"""What hidden participation is worth: the price of many rounds by noise, beside the alternatives.

    python -m bench.hidden_participation [--accuracy] [--data DIR] [--seeds 5]

prints the tables of docs/mathematics.md, "Hidden participation". The columns that the product does
not charge are dp_accounting's. With `--accuracy`: how well a logistic regression of abalone does
at the same price, with batches that are known and with each client's own coin, simulated.
"""

import argparse
import math
import time
from pathlib import Path

import dp_accounting
import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import rdp_privacy_accountant as rdp

from bench.variational import BATCH, TRAIN, abalone, accuracy, by_bounds, task_of
from figures.sources import Files
from shoal_learning.learners import learner_for
from shoal_learning.simulation import Federation, run
from shoal_protocol.amplification import hidden_mu
from shoal_protocol.curves import gaussian_epsilon
from shoal_protocol.posteriors import LogisticRegressionPosterior


def zero_out(deviation: float, rate: float, rounds: int, delta: float) -> float:
    """Return epsilon where neighbours differ by a client whose gradient is or is not there."""
    one = pld.from_gaussian_mechanism(
        2.0 * deviation,
        sampling_prob=rate,
        value_discretization_interval=min(1e-4, 1e-4 / deviation),
    )
    return float(one.self_compose(rounds).get_epsilon_for_delta(delta))


def secret_batches(deviation: float, batch: int, clients: int, rounds: int, delta: float) -> float:
    """Return epsilon of batches of fixed size that were drawn in secret, by replacement."""
    accountant = rdp.RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        clients, batch, dp_accounting.GaussianDpEvent(deviation)
    )
    accountant.compose(event, rounds)
    return float(accountant.get_epsilon(delta))


def print_prices(rounds: int, delta: float) -> None:
    """Print one line for each noise."""
    rate, participations = round(BATCH / TRAIN, 2), math.ceil(rounds * BATCH / TRAIN)
    print("| sd / 2C | hidden mu | central limit | hidden | zero-out | secret | public | s |")
    print("|---|---|---|---|---|---|---|---|")
    for deviation in (1.22, 3.55, 10.3, 17.6):
        begun = time.perf_counter()
        mu = hidden_mu(rate=rate, mu=1.0 / deviation, rounds=rounds)
        seconds = time.perf_counter() - begun
        limit = rate * math.sqrt(4.0 * rounds * math.sinh(0.25 / deviation**2))
        epsilons = (
            gaussian_epsilon(mu=mu, delta=delta),
            zero_out(deviation, rate, rounds, delta),
            secret_batches(deviation, BATCH, TRAIN, rounds, delta),
            gaussian_epsilon(mu=math.sqrt(participations) / deviation, delta=delta),
        )
        stated = " | ".join(f"{epsilon:.3g}" for epsilon in epsilons)
        print(f"| {deviation} | {mu:.4f} | {limit:.4f} | {stated} | {seconds:.2f} |")


def print_accuracies(path: Path, rounds: int, delta: float, seeds: int) -> None:
    """Print one line for each price: mean accuracies on held-out rows, with standard errors."""
    records, known = abalone(path), task_of(by_bounds(), rounds)
    rate = round(BATCH / TRAIN, 2)
    everybody = type(known).model_validate(known.model_dump() | {"batch": None})
    hidden = type(known).model_validate(everybody.model_dump() | {"participation": rate})
    print("| epsilon | known batches | all, known | all, hidden participation |")
    print("|---|---|---|---|")
    for epsilon in (0.1, 0.3, 1.0, 3.0):
        federation = Federation(
            population=TRAIN, missing=0, dropouts=0, colluders=0, epsilon=epsilon, delta=delta
        )
        cells = []
        for task in (known, everybody, hidden):
            found = []
            for seed in range(seeds):
                generator = np.random.default_rng([seed, rounds])
                outcome = run(learner_for(task), records[:TRAIN], federation, generator)
                if not isinstance(outcome.posterior, LogisticRegressionPosterior):
                    raise TypeError("the learner is not that of a logistic regression")
                found.append(accuracy(outcome.posterior, records[TRAIN:]))
            cells.append(f"{np.mean(found):.4f} ± {np.std(found) / math.sqrt(seeds):.4f}")
        print(f"| {epsilon:g} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Read the arguments and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accuracy", action="store_true", help="accuracies instead of prices")
    parser.add_argument("--data", type=Path, default=None, help="folder that holds abalone.data")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--delta", type=float, default=1e-5)
    asked = parser.parse_args()
    if asked.accuracy:
        files = Files(data=asked.data, cache=Path("build/data"))
        print_accuracies(files.uci("abalone.data"), asked.rounds, asked.delta, asked.seeds)
    else:
        print_prices(asked.rounds, asked.delta)


if __name__ == "__main__":
    main()
