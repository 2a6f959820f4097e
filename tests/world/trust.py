"""The keys, certificates and manifest of a whole consortium, made once for many simulations."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from nacl.signing import SigningKey

from shoal_consortium import quickstart
from shoal_holder.keys import read_holder_key
from shoal_holder.policy import Policy
from shoal_holder.records import Records
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.policy import Policy as ConsortiumPolicy
from shoal_studies.catalogue.linear_regression import LinearRegressionTask
from tests.world.chance import fixed_bytes
from tests.world.clock import NOW
from tests.world.people import people

SITES = {"clinic-a": 6, "clinic-b": 6, "clinic-c": 2}  # the last has as many as may go missing
PHONES = {f"phone-{number:02}": 1 for number in range(1, 13)}
COLUMNS = ("age", "pressure")
TASK = LinearRegressionTask(
    features=(ColumnBounds(name="age", lower=0.0, upper=120.0),),
    target=ColumnBounds(name="pressure", lower=60.0, upper=200.0),
    method="plain",
)
TASK_WITH_PROJECTION = TASK.model_copy(update={"method": "ball_projection"})
HOLDER_POLICY = Policy(
    analysts=("analyst",),
    queries=("second_moments", "second_moment_matrix"),
    columns=COLUMNS,
    maximum_epsilon=4.0,
    delta=1e-6,
    minimum_population=10,
    minimum_colluders=2,
    approval="automatic",
)
CONSORTIUM_POLICY = ConsortiumPolicy(
    minimum_cohort=8,
    minimum_colluders=2,
    colluding_holders=0,
    minimum_holders=2,
    maximum_epsilon=4.0,
    delta=1e-6,
    mechanisms=("discrete_gaussian",),
    queries=("second_moments", "second_moment_matrix"),
    maximum_round_seconds=86_400,
)


@dataclass(frozen=True)
class Trust:
    """A quickstart federation's directory, its first manifest and who has which URL."""

    directory: Path
    consortium: Consortium

    def key(self, site: str) -> SigningKey:
        return read_holder_key(self.directory / "clients" / site / "holder.key")

    def records(self, site: str) -> Records:
        """Return made-up records of which every client's is another one."""
        count = SITES[site]
        first = list(SITES).index(site) * 7
        age = 30.0 + (np.arange(count) * 37 + first) % 50
        pressure = 90.0 + 0.5 * age + (np.arange(count) * 13) % 9
        return people(COLUMNS, np.column_stack([age, pressure]))

    def party_of(self, url: httpx.URL) -> str:
        """Return the name of the service at a URL.

        Raises:
            httpx.ConnectError: nobody is there.
        """
        address = f"{url.scheme}://{url.netloc.decode()}"
        manifest = self.consortium.manifest
        services = (*manifest.compute_nodes, manifest.aggregator, manifest.trainer)
        for party in services:
            if party.url == address:
                return party.name
        raise httpx.ConnectError("nobody is there")


def make_trust(
    directory: Path,
    *,
    nodes: int = 3,
    sites: Mapping[str, int] | None = None,
    url_template: str = "https://{name}.example:{port}",
    first_port: int = 8440,
    now: datetime = NOW,
    **policy: Any,
) -> Trust:
    """Make a consortium; its signing and box keys are the same every time.

    `policy` are changes to the one that simulations usually have, `sites` others than theirs.
    """
    consortium = quickstart.make(
        directory,
        consortium="simulated",
        compute_nodes=nodes,
        clients=dict(sites or SITES),
        url_template=url_template,
        first_port=first_port,
        policy=ConsortiumPolicy.model_validate(CONSORTIUM_POLICY.model_dump() | policy),
        valid_days=30,
        now=now,
        random_bytes=fixed_bytes("trust"),
    )
    return Trust(directory, consortium)
