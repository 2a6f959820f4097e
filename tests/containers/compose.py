"""Runs `docker compose` under a project name of its own."""

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.containers.waiting import until

ROOT: Final = Path(__file__).parents[2]


def engine_answers() -> bool:
    """Tell whether there is a Docker engine with Compose."""
    if shutil.which("docker") is None:
        return False
    probes = (["docker", "compose", "version"], ["docker", "info"])
    return all(
        subprocess.run(probe, capture_output=True, check=False).returncode == 0 for probe in probes
    )


def run(command: list[str], environment: Mapping[str, str] = os.environ) -> str:
    """Run a command and return what it printed.

    Raises:
        RuntimeError: it failed; the message says how.
    """
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode()[-4000:]
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {said}")
    return done.stdout.decode()


def docker(*arguments: str) -> str:
    """Run `docker` and return what it printed."""
    return run(["docker", *arguments])


class Compose:
    """One project: docker-compose.yml, and `override` laid over it."""

    def __init__(self, override: Path, **variables: str) -> None:
        """Choose the project's name; `variables` are what ${...} stands for in the files."""
        self.project = f"shoal-test-{uuid.uuid4().hex[:8]}"
        self._environment = os.environ | variables
        self._command = [
            *("docker", "compose", "--project-name", self.project),
            *("--project-directory", str(ROOT)),
            *("--file", str(ROOT / "docker-compose.yml"), "--file", str(override)),
        ]
        self._containers: dict[str, str] = {}

    def __call__(self, *arguments: str) -> str:
        """Run a subcommand and return what it printed."""
        return run([*self._command, *arguments], self._environment)

    def start(self, *services: str) -> None:
        """Start services, and wait until all are healthy.

        On a busy machine one may be called unhealthy for a moment: `up --wait` would give up.
        """
        self("up", "--detach", *services)
        until("all are healthy", lambda: self.are_healthy(*services), patience=600.0)

    def are_healthy(self, *services: str) -> bool:
        """Tell whether all services pass the health checks of their images."""
        states = [self.inspect(service)["State"] for service in services]
        return all(state["Health"]["Status"] == "healthy" for state in states)

    def container(self, service: str) -> str:
        """Return the id of a service's one container, whether it runs or not."""
        if service not in self._containers:
            [self._containers[service]] = self("ps", "--all", "--quiet", service).split()
        return self._containers[service]

    def inspect(self, service: str) -> dict[str, Any]:
        """Return what the engine knows of a service's container."""
        [found] = json.loads(docker("inspect", self.container(service)))
        return dict(found)

    def execute(self, service: str, *command: str) -> str:
        """Run a command in a service's container and return what it printed."""
        return docker("exec", self.container(service), *command)

    def down(self) -> None:
        """Stop and remove the project's containers, networks and volumes."""
        self("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "10")
