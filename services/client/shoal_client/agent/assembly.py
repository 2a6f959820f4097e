"""Puts an agent together from its owner's files and a clock; it listens on nothing yet."""

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import httpx
import structlog
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from shoal_client.agent.application import create_agent_application
from shoal_client.agent.settings import Settings
from shoal_client.agent.telemetry import Telemetry
from shoal_client.holder import DataHolder
from shoal_client.keys import read_client_keys
from shoal_client.policy import Policy
from shoal_client.private_files import write_new
from shoal_client.records import Records
from shoal_client.site_files import lock_keys
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.party import read_pin
from shoal_hosting.security import StartupRefused, read_private_file

TOKEN_FILE: Final = "owner.token"

log = structlog.get_logger()


@dataclass(frozen=True)
class Service:
    """An agent: an application to serve, and work to do beside it."""

    app: ASGIApp
    wake: asyncio.Event
    holder: DataHolder
    _processes: Executor | None

    async def step(self) -> None:
        """Do all that is due now."""
        await self.holder.step()

    async def close(self) -> None:
        """End the work in progress and let go of connections, processes and the state."""
        await self.holder.close()
        if self._processes is not None:
            self._processes.shutdown()


def assemble(
    settings: Settings,
    *,
    clock: Callable[[], datetime],
    transport: httpx.AsyncBaseTransport | None = None,
    long_polls: bool = False,
) -> Service:
    """Return the agent that the settings describe; it goes on where it was.

    `transport` stands in for the network in tests. With `long_polls` it is woken as soon as there
    is a round; without, each `step` asks once and nothing runs between steps.

    Raises:
        StartupRefused: a file is missing, broken, or does not fit the others.
    """
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartupRefused(_complaint(error)) from error
    pin = settings.pin or read_pin(settings.party)
    book = ManifestBook.open(settings.consortium, pin, settings.data)
    token = _owner_token(settings.data / TOKEN_FILE)
    registry = CollectorRegistry()
    count = settings.agent_processes
    processes = ProcessPoolExecutor(count, get_context("spawn")) if count else None
    lock, wake = None, asyncio.Event()
    try:
        policy = Policy.from_toml(settings.agent_policy)
        lock = lock_keys(settings.agent_keys)
        holder = DataHolder(
            keys=read_client_keys(settings.agent_keys),
            records=Records.from_file(  # other columns are never in this process's memory
                settings.agent_records,
                policy.columns,
                client_column=settings.agent_client_column,
            ),
            policy=policy,
            book=book,
            data_directory=settings.data,
            clock=clock,
            transport=transport,
            executor=processes,
            report=Telemetry(registry),
            lock=lock,
            accept_loss=settings.accept_loss,
            wake=wake if long_polls else None,
        )
    except (ValueError, OSError, ImportError) as error:
        if lock is not None:
            lock.close()
        raise StartupRefused(_complaint(error)) from error
    _log_enrolled(*holder.enrolled())
    app = create_agent_application(holder, token=token, registry=registry)
    return Service(app, wake, holder, processes)


def _complaint(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    return str(error)


def _log_enrolled(enrolled: int, keys: int) -> None:
    log.info(f"{enrolled} of {keys} keys are enrolled", enrolled=enrolled, keys=keys)
    if enrolled == 0:
        log.warning(
            "no client here can join a job: hand the keys' enrolment file to the consortium's "
            "authority, which enrols them and publishes the new manifest"
        )


def _owner_token(path: Path) -> str:
    if not path.exists():
        write_new(path, f"{secrets.token_hex(32)}\n".encode(), private=True)
    token = read_private_file(path).decode("ascii", errors="replace").strip()
    if len(token) < 32:
        raise StartupRefused(f"{path} holds no token; delete it, and the next start makes one")
    return token
