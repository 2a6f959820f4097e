"""The console of a service: one page that shows its state.

The page has no controls: operators act by commands and settings. Nothing on it is linked to a data
holder.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry
from starlette.responses import Response

from shoal_kit.clock import Clock
from shoal_kit.manifest_book import ManifestBook, newest_with
from shoal_kit.pages.console import START, Console
from shoal_kit.peers.exchange import Connections
from shoal_kit.vitals import Vitals
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.versions import RELEASE, WIRE
from shoal_service.view import Look, in_words, labelled

CLOCK_TOLERANCE_SECONDS: Final = 5.0
LEAST_DISK: Final = 0.1
_GIB: Final = 1 << 30


_REFUSED_METRIC: Final = "shoal_refused_requests_total"


def console_routes(
    title: str,
    *,
    party: str,
    token: str,
    ready: Callable[[], Awaitable[Mapping[str, str]]],
    look: Look | None,
    book: ManifestBook,
    vitals: Vitals,
    peers: Connections,
    registry: CollectorRegistry,
    clock: Clock,
) -> APIRouter:
    """Return the routes of the page of a `party`'s service, for whoever has the `token`.

    The page shows what is common to all services, and what `look` returns. `ready` returns faults
    of the service by the name of the faulty part.
    """
    console = Console(
        title=title,
        sections={START: "Now"},
        token=token,
        token_file="operator.token of the data directory",
        package=__package__,
        clock=clock,
    )
    began_at = clock()

    async def show_now(request: Request) -> Response:
        special, told, broken = dict[str, Any](), dict[str, str](), None
        try:
            told = dict(await ready())
            await vitals.read()
            special = {} if look is None else await look()
        except ProtocolError as error:
            broken = error
        others = [each for each in newest_with(book, party).manifest.services if each.name != party]
        healths = {each.name: _health(peers, each) for each in others}
        clocks = labelled(registry, "shoal_compute_peer_clock_offset_seconds", "peer")
        troubles = []
        if broken is not None:  # its notes are for this operator alone
            troubles = [". ".join([str(broken), *getattr(broken, "__notes__", [broken.remedy])])]
        troubles += [f"The {name} {what}." for name, what in told.items()]
        troubles += _troubles(registry, healths, clocks)
        return console.shown(
            request,
            "now.html",
            party=party,
            troubles=troubles,
            facts={
                **_facts(registry, began_at),
                "As of": in_words(clock()),
                "Other services": [
                    {
                        "Service": name,
                        "Health": health,
                        "Its clock": f"{clocks[name]:+.1f} s" if name in clocks else "not compared",
                    }
                    for name, (health, _) in healths.items()
                ],
                **special,
            },
        )

    console.page(START, show_now)
    return console.routes


def _health(peers: Connections, party: ServiceParty) -> tuple[str, bool]:
    """Return in words whether a party answers, and whether the operator must act."""
    try:
        line = peers.to(party)
    except ValueError as error:  # the manifest lists an unusable certificate
        return str(error), True
    if line.failure is not None:
        return line.failure, True
    if line.answered_at is None:
        return "not asked since the start", False
    return f"answered {_span(asyncio.get_running_loop().time() - line.answered_at)} ago", False


def _facts(registry: CollectorRegistry, began_at: datetime) -> dict[str, str]:
    value = registry.get_sample_value
    days, free = value("shoal_certificate_days_left"), value("shoal_disk_free_bytes")
    size, version = value("shoal_disk_size_bytes"), value("shoal_manifest_version")
    age = value("shoal_oldest_open_round_seconds")
    facts = {"Release": f"{RELEASE}, protocol {WIRE}", "Started": in_words(began_at)}
    if days is not None and not math.isnan(days):
        facts["Certificate"] = f"ends in {int(days):,} days"
    if free is not None and size:
        facts["Disk"] = f"{free / _GIB:,.1f} GiB free of {size / _GIB:,.1f}"
    if version:
        facts["Manifest"] = f"version {version:.0f}"
    if age is not None:
        facts["Oldest open round"] = "none" if age <= 0 else f"open for {_span(age)}"
    return facts


def _troubles(
    registry: CollectorRegistry,
    healths: Mapping[str, tuple[str, bool]],
    clocks: Mapping[str, float],
) -> Iterator[str]:
    free = registry.get_sample_value("shoal_disk_free_bytes")
    size = registry.get_sample_value("shoal_disk_size_bytes")
    if free is not None and size and free < LEAST_DISK * size:
        yield "The disk is almost full. Give the data volume more room; delete nothing in it."
    for name, (health, is_trouble) in healths.items():
        if is_trouble:
            yield f"{name} does not answer: {health}."
    for name, seconds in clocks.items():
        if abs(seconds) > CLOCK_TOLERANCE_SECONDS:
            yield f"The clock of {name} and this one differ by {abs(seconds):.0f} seconds."
    if faults := labelled(registry, _REFUSED_METRIC, "reason").get("internal-error"):
        yield f"Internal errors: {faults:.0f}. Search the log for “request failed”."


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return "1 second" if f"{seconds:.0f}" == "1" else f"{seconds:.0f} seconds"
