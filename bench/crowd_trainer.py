"""A trainer alone, as one process or several, and answers to its draws, made beforehand."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import nacl.utils
import numpy as np
from nacl.signing import SigningKey

from bench.raw_requests import ask, request
from demo.ports import free_ports
from shoal_consortium import quickstart
from shoal_consortium.processes import Process
from shoal_holder.keys import read_holder_key
from shoal_hosting.party import load_party
from shoal_protocol.crowds.draws import CrowdJobRequest, Draw, Submission
from shoal_protocol.crowds.tasks import CrowdTask, contribute
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.policy import Policy
from shoal_protocol.wire.documents import decode, sign
from shoal_trainer.assembly import DRAWS_AT_ONCE

CONNECTIONS: Final = 64
CLIENTS: Final = 200
SITE: Final = "site"
MOST_LOCAL_EPSILON: Final = 1000.0


def made_consortium(directory: Path, clients: Mapping[str, int], **policy: Any) -> Consortium:
    """Make two Compute nodes on free ports of this machine, valid for a day.

    There are so many `clients` at each site. `policy` adds to rules that ask for little.
    """
    return quickstart.make(
        directory,
        consortium="measured",
        compute_nodes=2,
        clients=dict(clients),
        url_template="https://127.0.0.1:{port}",
        first_port=free_ports(4 + len(clients)),
        policy=Policy(
            minimum_cohort=2,
            minimum_colluders=0,
            colluding_holders=0,
            minimum_holders=1,
            maximum_epsilon=10.0,
            delta=1e-6,
            mechanisms=("discrete_gaussian",),
            queries=("second_moments",),
            maximum_round_seconds=3600,
            **policy,
        ),
        valid_days=1,
        now=datetime.now(UTC),
        random_bytes=nacl.utils.random,
    )


def task_of(weights: int, instances: int, epsilon: float) -> CrowdTask:
    """Return a logistic regression with so many weights and instances."""
    return CrowdTask(
        family="logistic",
        features=tuple(
            ColumnBounds(name=f"x{j}", lower=-1.0, upper=1.0) for j in range(weights - 1)
        ),
        target=ColumnBounds(name="y", lower=0.0, upper=1.0),
        clip=0.03,
        epsilon=epsilon,
        learning_rate=0.03,
        instances=instances,
    )


class Trainer:
    """A trainer's processes in a made-up consortium; nothing else of it runs."""

    def __init__(
        self,
        directory: Path,
        *,
        processes: int,
        database_url: str,
        draws_at_once: int = DRAWS_AT_ONCE,
    ) -> None:
        """Make key and files, and say how to start the processes."""
        self.consortium = made_consortium(
            directory, {SITE: CLIENTS}, maximum_local_epsilon=MOST_LOCAL_EPSILON
        )
        self.key = read_holder_key(directory / "clients" / SITE / "holder.key")
        self._analyst = load_party(directory / "parties" / "analyst")
        [conducting] = [
            each
            for each in quickstart.services(directory, self.consortium)
            if each.name == "trainer"
        ]
        listed = self.consortium.manifest.trainer
        self.addresses: list[ServiceParty] = []
        self.processes: list[Process] = []
        for number in range(processes):
            port = conducting.environment["SHOAL_PORT"] if not number else str(free_ports(1))
            environment = {
                **conducting.environment,
                "SHOAL_PORT": port,
                "SHOAL_DATABASE_URL": database_url,
                "SHOAL_DRAWS_AT_ONCE": str(draws_at_once),
            }
            if number:
                environment |= {
                    "SHOAL_SERVES": "crowds",
                    "SHOAL_DATA": str(directory / f"crowds-{number}"),
                }
            name = f"trainer-{number}"
            log = directory / f"{name}.log"
            self.processes.append(Process(name, conducting.module, environment, log))
            self.addresses.append(listed.model_copy(update={"url": f"https://127.0.0.1:{port}"}))

    async def open(self, task: CrowdTask, contributions: int) -> str:
        """Open a crowd job for so many contributions and return its id."""
        each = -(-contributions // CLIENTS)
        body = CrowdJobRequest(
            manifest=self.consortium.digest,
            nonce=secrets.token_hex(16),
            analyst=self._analyst.name,
            task=task,
            contributions=contributions,
            contributions_per_client=each,
            contributions_per_record=each,
            session_seconds=3600,
            closes_at=datetime.now(UTC) + timedelta(hours=1),
        )
        signed = sign(body, self._analyst.name, self._analyst.signing_key)
        await ask(
            self.addresses[0],
            [request(self.addresses[0], "POST", "/v1/crowds", signed.encode())],
            connections=1,
        )
        return body.digest


def submissions(
    drawn: Sequence[bytes], first: int, key: SigningKey, task: CrowdTask
) -> list[bytes]:
    """Return signed answers to draws. Steps and noise are zero: neither is the trainer's work."""
    zero, none = np.zeros(task.dimension, np.int64), np.zeros(task.touched, np.int64)
    made = []
    for number, encoded in enumerate(drawn, first):
        draw = decode(encoded, Draw)
        sent = contribute(
            *(task, np.array(draw.body.weights, np.int64), zero), coordinate=0, noise=none
        )
        body = Submission(
            manifest=draw.body.manifest,
            client=number % CLIENTS,
            draw=draw,
            weights=tuple(sent.tolist()),
        )
        made.append(sign(body, "client", key).encode())
    return made
