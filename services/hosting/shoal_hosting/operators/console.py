"""The console of a service: one page that shows how it stands.

It only shows: whoever runs a service acts by commands and settings. Nothing on it is linked to a
data holder.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry
from starlette.responses import Response

from shoal_hosting.clock import Clock
from shoal_hosting.operators.view import (
    Look,
    View,
    in_words,
    labelled,
)
from shoal_hosting.pages.console import START, Console
from shoal_hosting.peers.exchange import Connections
from shoal_hosting.vitals import Vitals
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.versions import RELEASE, WIRE

CLOCK_TOLERANCE_SECONDS: Final = 5.0
LEAST_DISK: Final = 0.1
_GIB: Final = 1 << 30


class OperatorConsole:
    """The page of one service; `routes` serves it."""

    def __init__(
        self,
        title: str,
        *,
        party: str,
        token: str,
        ready: Callable[[], Awaitable[Mapping[str, str]]],
        look: Look,
        vitals: Vitals,
        peers: Connections,
        registry: CollectorRegistry,
        clock: Clock,
    ) -> None:
        """Show what `look` returns and what all services have, to who has the `token`."""
        self._party, self._ready, self._look = party, ready, look
        self._vitals, self._peers, self._registry, self._clock = vitals, peers, registry, clock
        self._began_at = clock()
        self._console = Console(
            title=title,
            sections={START: "Now"},
            token=token,
            token_file="operator.token of the data directory",
            package=__package__,
            clock=clock,
        )
        self._console.page(START, self._show_now)

    @property
    def routes(self) -> APIRouter:
        """Return the routes of the pages."""
        return self._console.routes

    async def _show_now(self, request: Request) -> Response:
        view, told, broken = View(), dict[str, str](), None
        try:
            told = dict(await self._ready())
            await self._vitals.read()
            view = await self._look()
        except ProtocolError as error:
            broken = error
        healths = {
            each.name: self._health(each) for each in view.parties if each.name != self._party
        }
        clocks = labelled(self._registry, "shoal_compute_peer_clock_offset_seconds", "peer")
        troubles = [f"{broken}. {broken.remedy}"] if broken else []
        troubles += [f"The {name} {what}." for name, what in told.items()]
        troubles += self._troubles(healths, clocks)
        return self._console.shown(
            request,
            "now.html",
            party=self._party,
            at=in_words(self._clock()),
            troubles=troubles,
            facts=self._facts() | dict(view.facts),
            parties=[(name, *health, clocks.get(name)) for name, health in healths.items()],
            clocks=clocks,
            tables=view.tables,
        )

    def _health(self, party: ServiceParty) -> tuple[str, bool]:
        """Return how it stands with a party, and whether that is a trouble."""
        try:
            line = self._peers.to(party)
        except ValueError as error:  # of the certificate that the manifest lists
            return str(error), True
        if line.failure is not None:
            return line.failure, True
        if line.answered_at is None:
            return "not asked yet", False
        return f"answered {_span(asyncio.get_running_loop().time() - line.answered_at)} ago", False

    def _value(self, metric: str) -> float | None:
        return self._registry.get_sample_value(metric)

    def _facts(self) -> dict[str, str]:
        days, free = (
            self._value("shoal_certificate_days_left"),
            self._value("shoal_disk_free_bytes"),
        )
        size, version = self._value("shoal_disk_size_bytes"), self._value("shoal_manifest_version")
        age = self._value("shoal_oldest_open_round_seconds")
        facts = {
            "Release": f"{RELEASE}, protocol {WIRE}",
            "Started": in_words(self._began_at),
        }
        if days is not None and days == days:
            facts["Certificate"] = f"ends in {int(days):,} days"
        if free is not None and size:
            facts["Disk"] = f"{free / _GIB:,.1f} GiB free of {size / _GIB:,.1f}"
        if version:
            facts["Manifest"] = f"version {version:.0f}"
        if age is not None:
            facts["Oldest open round"] = "none" if age <= 0 else f"open for {_span(age)}"
        return facts

    def _troubles(
        self, healths: Mapping[str, tuple[str, bool]], clocks: Mapping[str, float]
    ) -> Iterator[str]:
        free, size = self._value("shoal_disk_free_bytes"), self._value("shoal_disk_size_bytes")
        if free is not None and size and free < LEAST_DISK * size:
            yield "The disk is almost full. Give the data volume more room; delete nothing in it."
        for name, (health, is_trouble) in healths.items():
            if is_trouble:
                yield f"{name} does not answer: {health}."
        for name, seconds in clocks.items():
            if abs(seconds) > CLOCK_TOLERANCE_SECONDS:
                yield f"The clock of {name} and this one differ by {abs(seconds):.0f} seconds."
        if faults := labelled(self._registry, _REFUSED_METRIC, "reason").get("internal-error"):
            yield f"It met {faults:.0f} faults of its own: find “request failed” in the log."


_REFUSED_METRIC: Final = "shoal_refused_requests_total"


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return "1 second" if f"{seconds:.0f}" == "1" else f"{seconds:.0f} seconds"
