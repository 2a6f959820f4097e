"""The console of a service: how it stands, what it refused, and its log.

It only shows: whoever runs a service acts by commands and settings. Nothing on it is linked to a
data holder, and the log is the one that the service writes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from shoal_hosting.operators.view import (
    Look,
    Operator,
    RecentLines,
    View,
    in_words,
    labelled,
)
from shoal_hosting.pages.console import START, Console
from shoal_hosting.peers.exchange import Contact
from shoal_hosting.server.problems import HTTP_PROBLEMS
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.versions import RELEASE, WIRE

if TYPE_CHECKING:
    from shoal_hosting.service import Resources

REFUSED, LOG = f"{START}/refused", f"{START}/log"
CLOCK_TOLERANCE_SECONDS: Final = 5.0
LEAST_DISK: Final = 0.1
_OWN_FIELDS: Final = frozenset({"event", "level", "timestamp"})
_GIB: Final = 1 << 30


class OperatorConsole:
    """The pages of one service; `routes` serves them."""

    def __init__(
        self,
        title: str,
        resources: "Resources",
        operator: Operator,
        log: RecentLines,
        *,
        ready: Callable[[], Awaitable[Mapping[str, str]]],
        look: Look,
    ) -> None:
        """Show what `look` returns and what all services have, to the `operator`."""
        self._own, self._log, self._ready, self._look = resources, log, ready, look
        self._began_at = resources.clock()
        self._console = Console(
            title=title,
            sections={START: "Now", REFUSED: "Refused", LOG: "Log"},
            token=operator.token,
            token_file="operator.token of the data directory",
            package=__package__,
            clock=resources.clock,
        )
        self._console.page(START, self._show_now)
        self._console.page(REFUSED, self._show_refused)
        self._console.page(LOG, self._show_log)

    @property
    def routes(self) -> APIRouter:
        """Return the routes of the pages."""
        return self._console.routes

    async def _show_now(self, request: Request) -> Response:
        view, told, broken = View(), dict[str, str](), None
        try:
            told = dict(await self._ready())
            await self._own.vitals.read()
            view = await self._look()
        except ProtocolError as error:
            broken = error
        parties = [each for each in view.parties if each.name != self._own.name]
        contacts = {each.name: self._contact(each) for each in parties}
        clocks = labelled(self._own.registry, "shoal_compute_peer_clock_offset_seconds", "peer")
        troubles = [f"{broken}. {broken.remedy}"] if broken else []
        troubles += [f"The {name} {what}." for name, what in told.items()]
        troubles += self._troubles(contacts, clocks)
        return self._console.shown(
            request,
            "now.html",
            party=self._own.name,
            at=in_words(self._own.clock()),
            troubles=troubles,
            facts=self._facts() | dict(view.facts),
            parties=[
                (name, *_contact_in_words(contact), clocks.get(name))
                for name, contact in contacts.items()
            ],
            clocks=clocks,
            tables=view.tables,
        )

    def _contact(self, party: ServiceParty) -> Contact | None:
        try:
            return self._own.peers.to(party).contact
        except ValueError as error:  # of the certificate that the manifest lists
            return Contact(asyncio.get_running_loop().time(), None, str(error))

    def _value(self, metric: str) -> float | None:
        return self._own.registry.get_sample_value(metric)

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
        self, contacts: Mapping[str, Contact | None], clocks: Mapping[str, float]
    ) -> Iterator[str]:
        free, size = self._value("shoal_disk_free_bytes"), self._value("shoal_disk_size_bytes")
        if free is not None and size and free < LEAST_DISK * size:
            yield "The disk is almost full. Give the data volume more room; delete nothing in it."
        for name, contact in contacts.items():
            if contact is not None and contact.failure is not None:
                yield f"{name} does not answer: {contact.failure}."
        for name, seconds in clocks.items():
            if abs(seconds) > CLOCK_TOLERANCE_SECONDS:
                yield f"The clock of {name} and this one differ by {abs(seconds):.0f} seconds."
        if faults := labelled(self._own.registry, _REFUSED_METRIC, "reason").get("internal-error"):
            yield f"It met {faults:.0f} faults of its own: find “request failed” in the log."

    async def _show_refused(self, request: Request) -> Response:
        counts = labelled(self._own.registry, _REFUSED_METRIC, "reason")
        known = _problems()
        rows = [
            (count, reason, *known.get(reason, ("", "")))
            for reason, count in sorted(counts.items(), key=lambda each: -each[1])
        ]
        began_at = in_words(self._began_at)
        return self._console.shown(request, "refused.html", rows=rows, began_at=began_at)

    async def _show_log(self, request: Request) -> Response:
        lines = [
            (
                event.get("timestamp", "")[:19].replace("T", " "),
                event.get("level", ""),
                event.get("event", ""),
                {name: _brief(each) for name, each in event.items() if name not in _OWN_FIELDS},
            )
            for event in self._log.events()
        ]
        return self._console.shown(request, "log.html", lines=lines)


_REFUSED_METRIC: Final = "shoal_refused_requests_total"


def _problems() -> dict[str, tuple[str, str]]:
    """Return title and remedy of every problem by its code."""
    found = {f"http-{each.value}": (each.phrase, "") for each in HTTPStatus}
    found |= {code: (title, remedy) for code, title, _, remedy in HTTP_PROBLEMS.values()}
    kinds: list[type[ProtocolError]] = [ProtocolError]
    while kinds:
        kind = kinds.pop()
        found[kind.code] = (kind.title, kind.remedy)
        kinds += kind.__subclasses__()
    return found


def _contact_in_words(contact: Contact | None) -> tuple[str, bool]:
    """Return how it stands with a party, and whether that is a trouble."""
    if contact is None:
        return "not asked yet", False
    if contact.failure is not None:
        return contact.failure, True
    ago = asyncio.get_running_loop().time() - (contact.answered_at or 0.0)
    return f"answered {_span(ago)} ago", False


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return "1 second" if f"{seconds:.0f}" == "1" else f"{seconds:.0f} seconds"


def _brief(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
