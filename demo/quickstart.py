"""A federation as `shoal quickstart` makes it, as processes to be started."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from demo.ports import free_ports
from shoal_consortium.processes import Process


def quickstart(
    home: Path, *, clients: Mapping[str, int], nodes: int, options: Sequence[str], logs: Path
) -> list[Process]:
    """Make a federation's files in `home` and return its services, not started.

    `clients` are how many of them each site has; `options` are the command's, beyond these.
    Without a data dictionary among them jobs may name any columns. A service writes its output to
    a file in `logs`.
    """
    command = [
        *(sys.executable, "-m", "shoal_command", "quickstart", str(home), "--json"),
        *("--compute", str(nodes), "--first-port", str(free_ports(nodes + 2 + len(clients)))),
        *([] if "--dictionary" in options else ["--no-dictionary"]),
        *options,
        *(f"--clients={site}={count}" for site, count in clients.items()),
    ]
    made = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return [
        Process(each["name"], each["module"], each["environment"], logs / f"{each['name']}.log")
        for each in made["processes"]
    ]


def first_agent_port(services: Sequence[Process]) -> int:
    """Return the first of the ports that `quickstart` kept free for the sites' agents."""
    return 1 + max(int(each.environment["SHOAL_PORT"]) for each in services)


def agent(home: Path, site: str, *, port: int, records: Path, policy: Path, logs: Path) -> Process:
    """Return the agent, not started, of a site of the federation in `home`."""
    environment = {
        "SHOAL_PARTY": str(home / "clients" / site),
        "SHOAL_CONSORTIUM": str(home / "consortium"),
        "SHOAL_DATA": str(home / "data" / site),
        "SHOAL_HOST": "127.0.0.1",
        "SHOAL_PORT": str(port),
        "SHOAL_AGENT_KEY": str(home / "clients" / site / "holder.key"),
        "SHOAL_AGENT_RECORDS": str(records),
        "SHOAL_AGENT_POLICY": str(policy),
    }
    return Process(site, "shoal_agent", environment, logs / f"{site}.log")
