"""The federation under attack: everybody's keys, and signed requests to its services."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

import httpx
from nacl.signing import SigningKey

from shoal_consortium.party_files import read_signing_key
from shoal_holder.keys import read_holder_key
from shoal_holder.site_files import HOLDER_KEY
from shoal_kit.clock import Clock
from shoal_kit.manifest_chain import open_chain
from shoal_kit.party import Party, load_party
from shoal_kit.peers.exchange import LARGEST_ANSWER_BYTES, Connection, Reply, Unavailable
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.wire.documents import DocumentT, Signed, sign
from shoal_redteam.findings import CannotAttack

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
ANSWER_SECONDS: Final = 40.0
DROPOUTS: Final = 2  # of the rounds that are played
PAUSE_SECONDS: Final = 0.25
SPARE: Final = 2  # enrolled clients beside the population, who are not asked

Timer = Callable[[], float]
"""Seconds since some moment, to measure by."""
Pause = Callable[[float], Awaitable[None]]
"""Let so many seconds pass."""


@dataclass(frozen=True)
class Keys:
    """Everybody's keys: of parties by name, of data holders with one slot by that slot."""

    parties: dict[str, Party] = field(repr=False)
    authority: SigningKey = field(repr=False)
    clients: dict[int, SigningKey] = field(repr=False)
    sites: dict[int, str]

    @classmethod
    def read(cls, directory: Path, consortium: Consortium) -> Self:
        """Read a quickstart federation's directory.

        Raises:
            ValueError, StartupRefused, OSError: not such a directory, or not complete.
        """
        parties = {
            home.name: load_party(home) for home in sorted((directory / "parties").iterdir())
        }
        clients: dict[int, SigningKey] = {}
        sites: dict[int, str] = {}
        for home in sorted((directory / "clients").iterdir()):
            key, roster = read_holder_key(home / HOLDER_KEY), consortium.roster
            holder = roster.holder_with(key.verify_key)
            slots = [] if holder is None else list(roster.slots_of(holder))
            if len(slots) == 1:
                clients[slots[0]], sites[slots[0]] = key, home.name
        authority = read_signing_key(directory / "authority" / "signing.key")
        return cls(parties, authority, dict(sorted(clients.items())), sites)


@dataclass
class Target:
    """The parties' keys, their services, a clock, and a way to let time pass."""

    consortium: Consortium
    keys: Keys
    clock: Clock
    timer: Timer
    pause: Pause
    random_bytes: RandomBytes
    transport: httpx.AsyncBaseTransport | None
    directory: Path
    requests: dict[str, bytes] = field(default_factory=dict, repr=False)
    """Signed requests of jobs whose rounds are announced, by job."""
    _connections: dict[str, Connection] = field(default_factory=dict, repr=False)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        clock: Clock,
        timer: Timer,
        pause: Pause,
        random_bytes: RandomBytes,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> Self:
        """Open the directory that `shoal quickstart` made.

        Raises:
            ValueError, StartupRefused, OSError: it is none, or a part of it is missing: a real
                federation has no directory that holds everybody's keys.
        """
        for part in ("parties", "clients", "authority", "consortium"):
            if not (directory / part).is_dir():
                raise ValueError(
                    f"{directory} is no test federation: {part}/ is missing. The red team needs "
                    "everybody's keys, as in a directory that `shoal quickstart` made"
                )
        consortium = open_chain(directory / "consortium")[-1]
        keys = Keys.read(directory, consortium)
        return cls(consortium, keys, clock, timer, pause, random_bytes, transport, directory)

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the Compute nodes' names, in the manifest's order."""
        return tuple(node.name for node in self.consortium.manifest.compute_nodes)

    @property
    def aggregator(self) -> str:
        """Return the aggregator's name."""
        return self.consortium.manifest.aggregator.name

    @property
    def trainer(self) -> str:
        """Return the trainer's name."""
        return self.consortium.manifest.trainer.name

    @property
    def services(self) -> tuple[str, ...]:
        """Return the names of all parties that run a service."""
        return (*self.nodes, self.aggregator, self.trainer)

    @property
    def analyst(self) -> str:
        """Return the first analyst's name."""
        return self.consortium.manifest.analysts[0].name

    @property
    def crew(self) -> tuple[int, ...]:
        """Return the clients that are asked, each its holder's only one: their budgets are spent.

        Raises:
            CannotAttack: there are too few clients.
        """
        policy = self.consortium.manifest.policy
        # without the dropouts, the colluders and one more, two are left to add noise
        size = max(policy.minimum_cohort, policy.minimum_colluders + 3) + DROPOUTS
        able = self._able()
        if len(able) < size + SPARE:
            raise CannotAttack(
                f"{size + SPARE} enrolled data holders with one slot are needed, and there are "
                f"keys of {len(able)}: make the federation with `--phones {size + SPARE}`"
            )
        return tuple(able[:size])

    @property
    def outsiders(self) -> tuple[int, ...]:
        """Return the enrolled clients that are not asked."""
        return tuple(self._able()[len(self.crew) :])

    def _able(self) -> list[int]:
        enrolled = self.consortium.roster.enrolled_set
        return [client for client in self.keys.clients if client in enrolled]

    def holder(self, client: int) -> int:
        """Return the index of a client's data holder; that of the next one beyond the roster."""
        roster = self.consortium.roster
        return roster.holder_of(client) if client < len(roster) else roster.holders

    def party(self, name: str) -> ServiceParty:
        """Return what the manifest says of a service.

        Raises:
            ValueError: it is none.
        """
        found = self.consortium.party(name)
        if not isinstance(found, ServiceParty):
            raise ValueError(f"{name} runs no service")
        return found

    def key(self, name: str) -> SigningKey:
        """Return a party's private key."""
        return self.keys.parties[name].signing_key

    def sign(self, body: DocumentT, name: str) -> Signed[DocumentT]:
        """Sign a document as the party of that name."""
        return sign(body, name, self.key(name))

    def after(self, seconds: float) -> datetime:
        """Return the moment that is so far ahead, in whole milliseconds as documents have it."""
        moment = self.clock() + timedelta(seconds=seconds)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    async def ask(self, name: str, path: str, **parameters: str | int) -> Reply:
        """Return what a service answers to a GET.

        Raises:
            CannotAttack: it does not answer.
        """
        return await self._request("GET", name, path, parameters=parameters)

    async def send(
        self, name: str, path: str, content: bytes, media_type: str = JSON, *, method: str = "POST"
    ) -> Reply:
        """Return what a service answers to a message.

        Raises:
            CannotAttack: it does not answer.
        """
        return await self._request(method, name, path, content, media_type=media_type)

    async def tell(
        self, names: Iterable[str], path: str, content: bytes, *, method: str = "POST"
    ) -> dict[str, Reply]:
        """Send one message to several services, one after another, and return their answers."""
        return {name: await self.send(name, path, content, method=method) for name in names}

    def ask_for(self, request: Signed[Any]) -> str:
        """Keep a job's signed request, to be handed to nodes before its rounds; return the job."""
        self.requests[request.digest] = request.encode()
        return request.digest

    async def announce(self, names: Iterable[str], spec: bytes, *, job: str) -> dict[str, Reply]:
        """Announce a round, as a trainer does: a node is handed the job's request first.

        Raises:
            CannotAttack: a service does not answer, or a node does not take the request.
        """
        answers = {}
        for name in names:
            if name in self.nodes:
                taken = await self.send(name, "/v1/jobs", self.requests[job])
                if taken.is_refusal:
                    raise CannotAttack(f"{name} refuses an honest request: {taken.reason}")
            answers[name] = await self.send(name, "/v1/rounds", spec)
        return answers

    async def _request(
        self, method: str, name: str, path: str, content: bytes | None = None, **how: Any
    ) -> Reply:
        try:
            return await self._connection(name).ask(
                method, path, content, limit_bytes=LARGEST_ANSWER_BYTES, **how
            )
        except Unavailable as error:
            raise CannotAttack(f"{name} does not answer: {error}") from error

    def _connection(self, name: str) -> Connection:
        """Return the connection to a service, which trusts its pinned certificate alone."""
        if name not in self._connections:
            party = self.party(name)
            self._connections[name] = Connection(
                party.url,
                party.certificate,
                transport=self.transport,
                answer_seconds=ANSWER_SECONDS,
            )
        return self._connections[name]

    async def until(
        self, holds: Callable[[], Awaitable[bool]], what: str, *, seconds: float
    ) -> None:
        """Let time pass until something holds.

        Raises:
            CannotAttack: it does not come about in time.
        """
        latest = self.after(seconds)
        while not await holds():
            if self.clock() >= latest:
                raise CannotAttack(f"it did not come about: {what}")
            await self.pause(PAUSE_SECONDS)

    def by_site(self, clients: Sequence[int]) -> dict[str, list[int]]:
        """Return these clients by the site whose keys they are."""
        by_site: dict[str, list[int]] = {}
        for client in clients:
            by_site.setdefault(self.keys.sites[client], []).append(client)
        return by_site
