"""Unit costs as ratios to bare primitives, beside those that are stored: what got dearer?

    python -m bench.unit_costs [--store] [--warn]

CPU time of the least of several runs, so that other work on the machine matters little, divided by
that of a primitive measured in between. `make bench-check` fails if a ratio is a quarter above the
stored one in bench/unit_costs.json, which `--store` writes anew; with `--warn` it only says so.
"""

import asyncio
import hashlib
import json
import math
import secrets
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from nacl.signing import SigningKey

from bench import node_costs
from bench.command import options
from bench.drive import FIRST_PHONE, Drive, phone_key, quickstart
from shoal_protocol.jobs.membership import Membership
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.sharing.shares import SEED_BYTES, ShareKind
from shoal_protocol.wire.documents import Role, decode, sign

STORED: Final = Path(__file__).with_suffix(".json")
TOLERATED: Final = 1.25
HOLDERS: Final = 2000
RUNS: Final = 5
VECTORS: Final = 500
_JOB: Final = "0" * 64

# the primitive that each unit is measured in
UNITS: Final = {
    "taken": "verify",
    "freeze": "hash",
    "added up from the store": "hash",
    "erased": "insert",
    "seed of 10 words": "stream",
    "seed of 1000 words": "stream",
    "vector of 1000 words": "add",
    "join": "verify",
}


def least(work: Callable[[], object], count: int) -> float:
    """Return the CPU seconds of one of `count` pieces that `work` does, in its quickest run."""
    found = []
    for _ in range(RUNS):
        begun = time.process_time()
        work()
        found.append((time.process_time() - begun) / count)
    return min(found)


def primitives() -> dict[str, float]:
    """Return the CPU seconds of each primitive."""
    key, text = SigningKey.generate(), secrets.token_bytes(200)
    # as many as are added up at once: memory is slower than what a processor keeps at hand
    signed, vectors = key.sign(text), np.ones((VECTORS, 1000), np.uint64)
    zeros, rows = bytes(8000), [(number, text) for number in range(20_000)]

    def stream() -> bytes:
        return Cipher(algorithms.ChaCha20(text[:32], bytes(16)), None).encryptor().update(zeros)

    def insert() -> None:
        with sqlite3.connect(":memory:") as db:
            db.execute("CREATE TABLE kept (number INTEGER PRIMARY KEY, content BLOB)")
            db.executemany("INSERT INTO kept VALUES (?, ?)", rows)

    def times(count: int, work: Callable[[], object]) -> float:
        return least(lambda: [work() for _ in range(count)], count)

    return {
        "verify": times(500, partial(key.verify_key.verify, signed)),
        "hash": times(20_000, lambda: hashlib.sha256(text).digest()),
        "stream": times(2000, stream),
        "add": least(lambda: vectors.sum(axis=0), VECTORS),
        "insert": least(insert, len(rows)),
    }


def seconds() -> dict[str, float]:
    """Return the CPU seconds of each unit."""
    found: dict[str, float] = {}
    seeds, vectors = secrets.token_bytes(4096 * SEED_BYTES), secrets.token_bytes(8000 * VECTORS)
    add = partial(summation.add_packed, ADDITIVE)
    found["seed of 10 words"] = least(lambda: add(ShareKind.SEED, seeds, 10), 4096)
    found["seed of 1000 words"] = least(lambda: add(ShareKind.SEED, seeds, 1000), 4096)
    found["vector of 1000 words"] = least(lambda: add(ShareKind.VECTOR, vectors, 1000), VECTORS)
    for _ in range(RUNS - 2):
        with tempfile.TemporaryDirectory() as directory:
            costs = asyncio.run(
                node_costs.measure(Path(directory), holders=HOLDERS, dimension=10, nodes=3)
            )
        for unit, microseconds in costs.items():
            found[unit] = min(microseconds / 1e6, found.get(unit, math.inf))
    with tempfile.TemporaryDirectory() as directory:
        found["join"] = _join(Path(directory))
    return found


def _join(directory: Path) -> float:
    """Return what reading and checking one join takes."""
    quickstart(directory, phones=200, nodes=2)
    consortium = Drive(directory).consortium
    joins = [
        sign(
            Membership(
                manifest=consortium.digest, job=_JOB, holder=FIRST_PHONE + number, state="joined"
            ),
            Role.HOLDER,
            phone_key(number),
        ).encode()
        for number in range(200)
    ]

    def read() -> None:
        for each in joins:
            consortium.verify_in_force(decode(each, Membership), consortium)

    return least(read, len(joins))


def ratios() -> dict[str, float]:
    """Return each unit in its primitive."""
    before, units, after = primitives(), seconds(), primitives()
    bare = {name: min(before[name], after[name]) for name in before}
    return {unit: float(f"{units[unit] / bare[each]:.3g}") for unit, each in UNITS.items()}


def dearer(stored: Mapping[str, float], measured: Mapping[str, float]) -> list[str]:
    """Return the units that cost a quarter more than what is stored, or are not stored at all."""
    return [
        unit
        for unit, ratio in measured.items()
        if unit not in stored or ratio > TOLERATED * stored[unit]
    ]


def main() -> None:
    """Measure, compare and print."""
    asked = options(__doc__, store=False, warn=False)
    measured = ratios()
    stored: dict[str, float] = {} if asked.store else json.loads(STORED.read_text())
    if asked.store:
        STORED.write_text(json.dumps(measured, indent=2) + "\n")
        stored = measured
    for unit, primitive in UNITS.items():
        print(f"{unit:26} {measured[unit]:8.3g} x {primitive:8} stored {stored.get(unit)}")
    found = dearer(stored, measured)
    for unit in found:
        print(f"warning: dearer by more than a quarter: {unit}")
    if found and not asked.warn:
        sys.exit(1)


if __name__ == "__main__":
    main()
