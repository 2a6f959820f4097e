"""What hidden participation is worth: the price of many rounds by noise, beside the alternatives.

    python -m bench.hidden_participation

prints the table of docs/mathematics.md, "Hidden participation". The columns that the product does
not charge are dp_accounting's.
"""

import argparse
import math
import time

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import rdp_privacy_accountant as rdp

from shoal_protocol.amplification import hidden_mu
from shoal_protocol.curves import gaussian_epsilon


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


def main() -> None:
    """Print one line for each noise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=3341)
    parser.add_argument("--batch", type=int, default=167)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--delta", type=float, default=1e-5)
    arguments = parser.parse_args()
    clients, batch, rounds = arguments.clients, arguments.batch, arguments.rounds
    rate = round(batch / clients, 2)
    participations = math.ceil(rounds * batch / clients)
    print("| sd / 2C | hidden mu | central limit | hidden | zero-out | secret | public | s |")
    print("|---|---|---|---|---|---|---|---|")
    for deviation in (1.22, 3.55, 10.3, 17.6):
        begun = time.perf_counter()
        mu = hidden_mu(rate=rate, mu=1.0 / deviation, rounds=rounds)
        seconds = time.perf_counter() - begun
        limit = rate * math.sqrt(4.0 * rounds * math.sinh(0.25 / deviation**2))
        epsilons = (
            gaussian_epsilon(mu=mu, delta=arguments.delta),
            zero_out(deviation, rate, rounds, arguments.delta),
            secret_batches(deviation, batch, clients, rounds, arguments.delta),
            gaussian_epsilon(mu=math.sqrt(participations) / deviation, delta=arguments.delta),
        )
        stated = " | ".join(f"{epsilon:.3g}" for epsilon in epsilons)
        print(f"| {deviation} | {mu:.4f} | {limit:.4f} | {stated} | {seconds:.2f} |")


if __name__ == "__main__":
    main()
