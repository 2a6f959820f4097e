"""How a party stands with the manifest in force: its keys, its certificate's days, its place."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import structlog
from nacl.public import PrivateKey
from prometheus_client import CollectorRegistry, Gauge

from shoal_kit.clock import Clock
from shoal_kit.manifest_book import ManifestBook, newest_with
from shoal_kit.party import (
    BOX_KEY,
    TLS_CERTIFICATE,
    KeyNotHere,
    Party,
    generations,
    public_half,
    read_seed,
)
from shoal_kit.private_files import erase
from shoal_kit.tls_certificates import EXPIRES_SOON, validity
from shoal_protocol.trust.manifest import Consortium, ListedParty
from shoal_protocol.wire.errors import NotReady

BETWEEN_LOOKS: Final = timedelta(days=1)
BOX_KEY_LIFETIME: Final = timedelta(days=30)
NOT_ERASED: Final = (
    "a key that was replaced cannot be erased: the directory is read-only, delete it"
)
log = structlog.get_logger()


class Standing:
    """Warns of what the operator has to do, and erases keys that nothing needs any more."""

    def __init__(
        self, party: Party, book: ManifestBook, clock: Clock, registry: CollectorRegistry
    ) -> None:
        """Show the days that the certificate is still valid as a metric."""
        self._party, self._book, self._clock = party, book, clock
        self.box_key_lifetime = BOX_KEY_LIFETIME
        self._next_look: datetime | None = None
        self._unerasable: set[str] = set()
        self._erased_for: tuple[str, frozenset[str]] = ("", frozenset())
        Gauge(
            "shoal_certificate_days_left",
            "Days until this party's TLS certificate ends",
            registry=registry,
        ).set_function(lambda: self._days_left() or float("nan"))

    def _listed(self) -> ListedParty | None:
        """Return what the newest version with the party says of it."""
        version = newest_with(self._book, self._party.name)
        return version.party(self._party.name) if version.lists(self._party.name) else None

    def _days_left(self) -> float | None:
        certificate = getattr(self._listed(), "certificate", "")
        try:
            return (validity(certificate)[1] - self._clock()) / timedelta(days=1)
        except ValueError:  # there is none, or a simulation's
            return None

    def _box_key_days(self) -> int | None:
        """Return for how many days the box key in force has existed, by the time of its file.

        None where the party has no box key in force.
        """
        listed = getattr(self._listed(), "box_key", None)
        for path in generations(self._party.directory, BOX_KEY):
            if _box_key(path) == listed:
                return (self._clock() - datetime.fromtimestamp(path.stat().st_mtime, UTC)).days
        return None

    def look(self) -> None:
        """Log once a day what `told` says of the certificate and the box key."""
        now = self._clock()
        if self._next_look is not None and now < self._next_look:
            return
        self._next_look = now + BETWEEN_LOOKS
        for name, what in self._due():
            log.warning(f"the {name.replace('_', ' ')} {what}")

    def _due(self) -> Iterator[tuple[str, str]]:
        """Yield what the operator is to renew, and what to say of it."""
        days, age = self._days_left(), self._box_key_days()
        if days is not None and days * timedelta(days=1) < EXPIRES_SOON:
            yield "certificate", f"ends in {int(days)} days: run `shoal party rotate --tls`"
        if age is not None and age >= self.box_key_lifetime.days:
            yield (
                "box_key",
                f"is {age} days old: run `shoal party rotate --box` and hand the card to the "
                "consortium's authority",
            )

    async def told(self, busy: Callable[[], Awaitable[bool]]) -> dict[str, str]:
        """Return what an operator should know; `busy` tells whether something is open here.

        Raises:
            NotReady: the manifest in force lists keys that the party's directory lacks.
        """
        told = dict(self._due())
        current = self._book.current
        if not current.lists(self._party.name):
            what = "serves what is open here" if await busy() else "may be switched off"
            return told | {"party": f"is no longer in the manifest, and {what}"}
        try:
            self._party.check_keys_in(current)
        except KeyNotHere as error:  # the store is well, whose refusal this is otherwise
            raise NotReady(str(error)) from error
        return told

    def erase(self, in_use: Iterable[str]) -> None:
        """Erase box and TLS keys older than those in force that no version `in_use` lists.

        What is sealed to such a key then stays closed for ever. Signing keys stay: a job's total is
        signed by the key of a version that may be months old.
        """
        newest, needed = newest_with(self._book, self._party.name), frozenset(in_use)
        if self._erased_for == (newest.digest, needed):
            return
        self._erased_for = (newest.digest, needed)
        versions = [newest, *map(self._book.get, needed)]
        self._erase(BOX_KEY, versions, _box_key)
        self._erase(TLS_CERTIFICATE, versions, Path.read_text)

    def _erase(
        self,
        name: str,
        versions: Iterable[Consortium],
        read: Callable[[Path], str],
    ) -> None:
        field = "box_key" if name == BOX_KEY else "certificate"
        listed = [
            getattr(each.party(self._party.name), field, None)
            for each in versions
            if each.lists(self._party.name)
        ]
        older: list[tuple[Path, str]] = []
        for path in generations(self._party.directory, name):
            public = read(path)
            if listed and public == listed[0]:
                break
            older.append((path.with_suffix(".key"), public))
        else:
            return  # none is in force here
        for path, public in older:
            if public in listed or not path.exists() or path.name in self._unerasable:
                continue
            try:
                erase(path)
                log.info("a key that was replaced is erased", file=path.name)
            except OSError:
                self._unerasable.add(path.name)
                log.warning(NOT_ERASED, file=path.name)


def _box_key(path: Path) -> str:
    return public_half(PrivateKey(read_seed(path)))
