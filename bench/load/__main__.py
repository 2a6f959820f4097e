"""Loads a test federation's services with simulated clients and prints what they bore, as JSON.

    shoal quickstart my-test --clients load=100000 --maximum-local-epsilon 1 --no-dictionary
    # then start its services
    python -m bench.load rounds --holder-key my-test/clients/load/holder.key \\
        --consortium my-test/consortium --analyst my-test/parties/analyst --data my-test/data/load
    python -m bench.load crowd …    # the same, without --data: a crowd job at the trainer

Never the real federation: the jobs spend these clients' budget at the services for ever. Every
message is real: sealed, signed and stored, over TLS; the records are made up. The services should
run on other machines than the load, or they share its processors.
"""

import argparse
import asyncio
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from bench.load import crowds, rounds
from bench.load.crowd_accounts import closed_account
from shoal.jobs.analyst import Analyst
from shoal_command.connection import open_book
from shoal_holder.keys import read_holder_key
from shoal_holder.site_files import lock_key
from shoal_kit.clock import system_clock
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.party import Party, load_party


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--holder-key", type=Path, required=True, help="of an enrolled data holder")
    common.add_argument("--consortium", type=Path, required=True, help="its directory")
    common.add_argument("--analyst", type=Path, required=True, help="its party directory")
    common.add_argument("--clients", type=int, help="how many of its slots to use; or all")
    common.add_argument("--features", type=int, default=9, help="of the regression")
    common.add_argument("--epsilon", type=float, default=1.0, help="of a job, or a contribution")
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    of_rounds = what.add_parser("rounds", parents=[common], help="jobs, each of one round")
    of_rounds.add_argument("--data", type=Path, required=True, help="for the clients' state")
    of_rounds.add_argument("--jobs", type=int, default=1, help="one after another")
    of_rounds.add_argument("--seconds", type=int, default=3600, help="for joins, answers, nodes")
    crowd = what.add_parser("crowd", parents=[common], help="one contribution of each client")
    crowd.add_argument("--instances", type=int, default=20, help="of the model, k")
    crowd.add_argument("--concurrency", type=int, default=16, help="requests open at once")
    return parser.parse_args()


def main() -> None:
    """Load, and print."""
    asked = arguments()
    analyst, book = load_party(asked.analyst), open_book(asked.analyst, asked.consortium)
    with lock_key(asked.holder_key):
        key = read_holder_key(asked.holder_key)
        holder = book.current.roster.holder_with(key.verify_key)
        if holder is None:
            raise SystemExit(f"the holder of {asked.holder_key} is not enrolled")
        slots = len(book.current.roster.slots_of(holder))
        asked.clients = min(asked.clients or slots, slots)
        run = _rounds if asked.what == "rounds" else _crowd
        print(json.dumps(run(asked, key, analyst, book)))


def _rounds(
    asked: argparse.Namespace, key: SigningKey, analyst: Party, book: ManifestBook
) -> dict[str, Any]:
    few = max(1, asked.clients // 100)
    plan = rounds.Plan(
        features=asked.features,
        jobs=asked.jobs,
        epsilon=asked.epsilon,
        delta=book.current.manifest.policy.delta,
        dropouts=few,
        colluders=few,
        seconds=asked.seconds,
    )
    load = rounds.RoundsLoad(
        plan=plan,
        key=key,
        clients=asked.clients,
        analyst=analyst,
        book=book,
        data=asked.data,
        clock=system_clock,
        monotonic=time.monotonic,
    )
    return asdict(asyncio.run(load.run()))


def _crowd(
    asked: argparse.Namespace, key: SigningKey, analyst: Party, book: ManifestBook
) -> dict[str, Any]:
    asking = Analyst(name=analyst.name, key=analyst.signing_key, book=book, clock=system_clock)
    job, load = crowds.opened(
        asking,
        key,
        clients=asked.clients,
        features=asked.features,
        epsilon=asked.epsilon,
        instances=asked.instances,
        concurrency=asked.concurrency,
    )
    figures = asyncio.run(load.run())
    account = asyncio.run(closed_account(job, figures, now=system_clock()))
    return figures.as_value() | {"account": account and asdict(account)}


if __name__ == "__main__":
    main()
