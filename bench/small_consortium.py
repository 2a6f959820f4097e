"""Makes a consortium of two Compute nodes on free ports of this machine, valid for a day."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nacl.utils

from demo.ports import free_ports
from shoal_consortium import quickstart
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.policy import Policy


def made_consortium(directory: Path, clients: Mapping[str, int], **policy: Any) -> Consortium:
    """Make keys and files in a directory, with so many clients at each site.

    `policy` adds to rules that ask for little.
    """
    plan = quickstart.Plan(
        consortium="measured",
        compute_nodes=2,
        clients=dict(clients),
        url_template="https://127.0.0.1:{port}",
        first_port=free_ports(4 + len(clients)),
        extra_hosts=(),
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
    )
    return quickstart.make(directory, plan, now=datetime.now(UTC), random_bytes=nacl.utils.random)
