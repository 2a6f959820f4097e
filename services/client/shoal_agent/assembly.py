"""Assembles an agent from its owner's files and a clock, log and metrics, not yet listening."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import httpx
import structlog
from prometheus_client import CollectorRegistry, Counter
from starlette.types import ASGIApp

from shoal_agent.application import create_agent_application
from shoal_agent.data_holder import COURIER, IN_THIS_PROCESS, DataHolder
from shoal_agent.directory import MemoryLost, ShutOut
from shoal_agent.settings import Settings
from shoal_agent.vault_link import VaultLink, VaultPipes
from shoal_holder.isolation import NO_NETWORK, NO_SOCKETS
from shoal_holder.messages import Opened
from shoal_holder.opening import complaint, from_files
from shoal_holder.site import Sources
from shoal_holder.status import Report
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.private_files import token_of
from shoal_kit.startup import StartupRefused, read_pin
from shoal_kit.vitals import Vitals
from shoal_protocol.wire.service_errors import StaleQuery

_OFTEN: Final = frozenset({"contributions charged", "contribution settled"})
"""Events of every few contributions to a crowd: counted, and in the log for who debugs."""


class Telemetry:
    """A `Report` for the agent. The events are the library's own, so their number is bounded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Counter(
            "shoal_agent_events", "What the agent did or met", ("event",), registry=registry
        )

    def __call__(self, event: str, /, **facts: object) -> None:
        """Log an event and count it."""
        self._events.labels(event.replace(" ", "_")).inc()
        if StaleQuery.code in str(facts.get("reason")):  # by a wrong clock
            log.warning(event, **facts)
        else:
            (log.debug if event in _OFTEN else log.info)(event, **facts)


TOKEN_FILE: Final = "owner.token"

log = structlog.get_logger()


@dataclass(frozen=True)
class Service:
    """An agent: an application to serve, and work to do beside it."""

    app: ASGIApp
    wake: asyncio.Event
    holder: DataHolder
    _said: list[str] = field(default_factory=list)

    async def step(self) -> None:
        """Do all that is due now, unless nothing may be joined or answered."""
        try:
            await self.holder.step()
        except (MemoryLost, ShutOut) as error:
            if str(error) not in self._said:
                self._said.append(str(error))
                log.error(str(error))

    async def close(self) -> None:
        """End the work in progress, let go of connections and end the vault."""
        await self.holder.close()


def assemble(
    settings: Settings,
    *,
    clock: Callable[[], datetime],
    transport: httpx.AsyncBaseTransport | None = None,
    long_polls: bool = False,
    inside: Sources | None = None,
) -> Service:
    """Return the agent that the settings describe; it goes on where it was.

    `transport` stands in for the network in tests, and with `inside` the vault is in this process.
    With `long_polls` it is woken as soon as there is a round; without, each `step` asks once and
    nothing runs between steps.

    Raises:
        StartupRefused: a file is missing, broken, or does not fit the others.
    """
    registry, wake = CollectorRegistry(), asyncio.Event()
    report = Telemetry(registry)
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        book = ManifestBook.open(
            settings.consortium, read_pin(settings.party), settings.data / COURIER
        )
        token = token_of(settings.data / TOKEN_FILE)
        vault = _vault(settings, report, inside)
    except (ValueError, OSError) as error:
        raise StartupRefused(complaint(error)) from error
    holder = DataHolder(
        vault,
        book,
        clock=clock,
        transport=transport,
        report=report,
        wake=wake if long_polls else None,
        **({} if inside is None else {"random_bytes": inside.random_bytes}),
    )
    _log_opened(vault.opened)
    app = create_agent_application(
        holder,
        token=token,
        registry=registry,
        vitals=Vitals(registry, book=book, directory=settings.data, clock=clock),
        metrics_for_anybody=settings.metrics_for_anybody,
    )
    return Service(app, wake, holder)


def _vault(settings: Settings, report: Report, inside: Sources | None) -> VaultLink:
    if settings.vault_pipes is not None:
        return VaultLink(VaultPipes.meet(settings.vault_pipes), report)
    if inside is None:
        return VaultLink(VaultPipes.start(settings), report)
    return VaultLink(from_files(settings, sources=inside, isolation=IN_THIS_PROCESS), report)


def _log_opened(opened: Opened) -> None:
    log.info(f"{opened.enrolled} slots are enrolled", enrolled=opened.enrolled)
    if opened.enrolled == 0 and not opened.is_shut_out:
        log.warning(
            "no slot here can join a job: hand the key's enrolment file to the consortium's "
            "authority, which enrols its holder and publishes the new manifest"
        )
    if opened.owners_missing is not None:
        log.warning(opened.owners_missing)
    log.info("the vault is open", isolation=opened.isolation)
    if opened.isolation not in (NO_SOCKETS, NO_NETWORK):
        log.warning(
            "the process with the records has a network: this system gives it neither an empty "
            "network namespace nor a filter of system calls"
        )
