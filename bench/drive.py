"""A federation of real processes, driven by hand: no trainer, no agents, only what is measured."""

import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray
from pyroaring import BitMap

import demo.quickstart
from shoal_consortium.consortium_files import add_version
from shoal_consortium.parties import next_manifest
from shoal_consortium.party_files import read_signing_key
from shoal_consortium.processes import Process
from shoal_holder.contribution import box_keys, draw_noise, seal_contribution
from shoal_holder.noise import exact_noise
from shoal_kit.manifest_chain import open_chain
from shoal_kit.party import load_party
from shoal_kit.peers.exchange import Connection
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.queries import Column, Query, SecondMomentMatrix
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.roster_changes import with_enrolled
from shoal_protocol.wire.documents import Signed, sign
from shoal_redteam.requests import request_for
from tests.world.signatures import countersign_all

SITE: Final = "site"
FIRST_PHONE: Final = 1  # index of the first phone, and of its slot: behind a site with one of each
DEADLINE: Final = timedelta(hours=1)
_CHUNK_CLIENTS: Final = 250


def columns_for(dimension: int) -> tuple[Column, ...]:
    """Return as many columns as give a second moment matrix of at least `dimension` entries."""
    width = next(p for p in range(1, 1000) if p * (p + 1) // 2 >= dimension)
    return tuple(Column(name=f"column {j}", centre=0.0, scale=1.0) for j in range(width))


def matrix_query(dimension: int) -> SecondMomentMatrix:
    """Return a query of at least `dimension` coordinates."""
    return SecondMomentMatrix(
        columns=columns_for(dimension),
        intercept=0.0,
        radius=1.0,
        grid_bits=10,
        records_per_client=1,
    )


def quickstart(
    directory: Path,
    *,
    clients: Mapping[str, int] | None = None,
    phones: int = 0,
    nodes: int,
    options: Sequence[str] = (),
) -> list[Process]:
    """Make a federation's files in `directory` and return its services, not started.

    `clients` are those of each site; `phones` are so many further data holders with one slot each,
    of which `Drive` has the keys.
    """
    rules = [
        "--minimum-cohort",
        "2",
        "--minimum-colluders",
        "0",
        "--colluding-holders",
        "0",
        "--minimum-holders",
        "1",
        "--maximum-epsilon",
        "50",
    ]
    sites = clients or {SITE: 1}
    services = demo.quickstart.quickstart(
        directory, clients=dict(sites), nodes=nodes, options=[*rules, *options], logs=directory
    )
    for each in services:  # benchmarks read what the services count
        each.environment = {**each.environment, "SHOAL_METRICS_FOR_ANYBODY": "true"}
    if phones:
        first = open_chain(directory / "consortium")[-1]
        enrolled = [(phone_key(number).verify_key, 1) for number in range(phones)]
        roster = with_enrolled(first.roster, enrolled)
        authority = read_signing_key(directory / "authority" / "signing.key")
        signed = next_manifest(first, roster=roster, authority=authority)
        add_version(directory / "consortium", signed, roster)
        countersign_all(directory / "consortium", directory / "parties")
    return services


def phone_key(number: int) -> SigningKey:
    """Return the key of a made-up phone; it protects nothing."""
    return SigningKey(hashlib.sha256(f"phone {number}".encode()).digest())


class Drive:
    """The trainer's key of a federation, and those of its phones, to announce and upload with."""

    def __init__(self, directory: Path) -> None:
        """Read them from a quickstart's directory."""
        self.consortium: Consortium = open_chain(directory / "consortium")[-1]
        self._trainer = load_party(directory / "parties" / "trainer")
        self._analyst = load_party(directory / "parties" / "analyst")
        self._requests: dict[str, bytes] = {}

    def spec(
        self,
        query: Query,
        clients: int,
        *,
        sharing: Sharing = ADDITIVE,
    ) -> Signed[RoundSpec]:
        """Return the signed spec of a new job's round, for the first `clients` phones."""
        now = datetime.now(UTC)
        request = request_for(
            self.consortium,
            query,
            analyst=self._analyst.name,
            nonce=secrets.token_hex(16),
            mechanism="discrete_gaussian",
            dropouts=0,
            colluders=0,
            sharing=sharing,
            opened_at=now.replace(microsecond=0),
        )
        asked = sign(request, self._analyst.name, self._analyst.signing_key)
        self._requests[asked.digest] = asked.encode()
        spec = make_spec(
            manifest=self.consortium,
            job=asked.digest,
            number=0,
            query=query,
            mechanism="discrete_gaussian",
            cost=Cost.gaussian(0.1),
            population=BitMap(range(FIRST_PHONE, FIRST_PHONE + clients)),
            dropouts=0,
            colluders=0,
            opened_at=now,
            deadline=now + DEADLINE,
            give_up_at=now + 2 * DEADLINE,
            sharing=sharing,
        )
        return sign(spec, self._trainer.name, self._trainer.signing_key)

    def envelopes(self, spec: RoundSpec) -> list[list[bytes]]:
        """Return every phone's envelopes, one for each node, made on all cores."""
        size = spec.population_size
        chunks = range(0, size, _CHUNK_CLIENTS)
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            made = pool.map(
                contributions,
                [spec] * len(chunks),
                [box_keys(self.consortium)] * len(chunks),
                [range(start, min(start + _CHUNK_CLIENTS, size)) for start in chunks],
            )
            return [each for chunk in made for each in chunk]

    def service(self, party: str) -> ServiceParty:
        """Return a Compute node or the aggregator by name."""
        manifest = self.consortium.manifest
        services = [*manifest.compute_nodes, manifest.aggregator]
        [service] = [each for each in services if each.name == party]
        return service

    def connection(self, party: str) -> Connection:
        """Return a connection to a service."""
        service = self.service(party)
        return Connection(service.url, service.certificate)

    def to_announce(self, spec: Signed[RoundSpec]) -> list[tuple[str, bytes]]:
        """Return what a Compute node is told before it takes shares: paths and bodies."""
        return [("/v1/jobs", self._requests[spec.body.job]), ("/v1/rounds", spec.encode())]

    async def announce(self, spec: Signed[RoundSpec]) -> None:
        """Hand the spec to every Compute node and the aggregator."""
        manifest = self.consortium.manifest
        for party in [*(node.name for node in manifest.compute_nodes), manifest.aggregator.name]:
            async with self.connection(party) as connection:
                for path, message in self.to_announce(spec)[party == manifest.aggregator.name :]:
                    reply = await connection.ask("POST", path, message)
                    if reply.status not in (200, 201):
                        raise RuntimeError(f"{party} refuses {path}: status {reply.status}")


def contributions(
    spec: RoundSpec,
    boxes: Sequence[bytes],
    phones: range,
    noise: NDArray[np.int64] | None = None,
) -> list[list[bytes]]:
    """Return envelopes in sealed boxes of some phones, one for each node, with this noise."""
    values = spec.query.encode(np.full((1, len(spec.query.column_names)), 0.25))
    if noise is None:
        noise = draw_noise(spec, 1, exact_noise, draws=len(phones))
    return [
        seal_contribution(
            spec,
            boxes,
            FIRST_PHONE + number,
            phone_key(number),
            values,
            noise[here],
            random_bytes=secrets.token_bytes,
        )
        for here, number in enumerate(phones)
    ]
