"""Data holders' sessions with this node: takes openings, steps keys forward and erases them."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from nacl.exceptions import CryptoError
from sqlalchemy import Connection, select

from shoal_compute import schema
from shoal_compute.round_book import TAKES_SHARES, RoundBook
from shoal_compute.session_secrets import OwnPrekey, Secrets
from shoal_hosting.server.replies import Outcome, documents_in
from shoal_hosting.service import Resources
from shoal_hosting.storage.database import insert_ignoring
from shoal_hosting.storage.group_commit import Batches
from shoal_protocol.sharing.session_envelope import is_under_session, parse_under_session
from shoal_protocol.sharing.sessions import (
    STEP_SECONDS,
    Opening,
    SessionRefusal,
    advance,
    first_key,
    hour_for,
    hour_of,
)
from shoal_protocol.trust.limits import CLOCKS_APART
from shoal_protocol.wire.documents import Role, Signed
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.service_errors import (
    MalformedEnvelope,
    RefusedOpening,
    StorageUnavailable,
    UnknownSession,
)

FILE: Final = "sessions.json"
_READ_AT_ONCE: Final = 64
_LARGEST_COMMIT: Final = 1_000

log = structlog.get_logger()


class _Session(NamedTuple):
    number: int
    opening: str
    verify_key: bytes
    hour: int
    key: bytes | None  # None if it is lost

    def place(self, holder: int) -> bytes:
        return b"".join(each.to_bytes(4, "little") for each in (holder, self.number, self.hour))


_Opened = tuple[int, _Session]  # by a data holder


class Sessions:
    """The newest session of each data holder. For one event loop; `key` is for any thread.

    A database that several processes share erases nothing and has no file beside it: there are no
    sessions then, and data holders seal boxes.
    """

    def __init__(
        self, resources: Resources, rounds: RoundBook, directory: Path, *, forget: bool
    ) -> None:
        """Go on with what is on file; with `forget`, with the numbers alone.

        That is for a database that was restored: what came out of a backup is not erased there.

        Raises:
            StorageUnavailable
        """
        self._own, self._rounds, self._path = resources, rounds, directory / FILE
        self.are_kept = not resources.storage.is_shared
        self._secrets = Secrets.fresh()
        self._known: dict[int, _Session] = {}
        self._worker = resources.worker("sessions")
        self._reading = Batches(self._read_all, largest=_READ_AT_ONCE)
        self._commits = Batches(self._commit, largest=_LARGEST_COMMIT)
        self._changing = asyncio.Lock()
        self._stepped_to = 0
        if self.are_kept:
            if not forget:
                self._secrets = Secrets.read(self._path)
            resources.storage.run_here(self._load)
            self._secrets = self._renewed(resources.clock())
            self._secrets.write(self._path)

    def _load(self, db: Connection) -> None:
        for row in db.execute(select(schema.sessions)):
            session = _Session(row.number, row.opening, row.verify_key, row.hour, None)
            try:
                key = self._secrets.decrypt(row.generation, row.key, session.place(row.holder))
            except CryptoError:  # of another file of this generation
                key = None
            self._known[row.holder] = session._replace(key=key)

    # What envelopes need

    def key(self, holder: int, number: int, verify_key: bytes, opened_at: datetime) -> bytes:
        """Return the chain's key for rounds that were opened then.

        Raises:
            UnknownSession: it is not the holder's newest, of another verify key, lost or erased.
        """
        known, hour = self._known.get(holder), hour_for(number, opened_at)
        if known is None or known.key is None or known.hour > hour:
            raise UnknownSession
        if (known.number, known.verify_key) != (number, verify_key):
            raise UnknownSession
        return advance(known.key, hour - known.hour)

    def keys(
        self,
        holders: Sequence[int],
        numbers: Sequence[int],
        verify_keys: Sequence[bytes],
        opened_at: datetime,
    ) -> list[bytes | None]:
        """Return for each data holder what `key` does, and None where it raises."""
        hour, sessions = hour_of(opened_at), self._known
        found: list[bytes | None] = []
        for holder, number, verify_key in zip(holders, numbers, verify_keys, strict=True):
            known = sessions.get(holder)
            if known is None or known.number != number or known.verify_key != verify_key:
                found.append(None)
            elif known.hour == hour:  # as nearly always
                found.append(known.key)
            else:
                try:
                    found.append(self.key(holder, number, verify_key, opened_at))
                except UnknownSession:
                    found.append(None)
        return found

    async def refuse(self, encoded: bytes) -> Signed[SessionRefusal]:
        """Sign that an envelope's session is not known.

        Raises:
            MalformedEnvelope: it is no envelope under a session.
            UnknownRound, UnknownHolder, RevokedHolder
            RefusedOpening: the session is known.
        """
        if not is_under_session(encoded):
            raise MalformedEnvelope("the envelope is not under a session")
        envelope = parse_under_session(encoded)
        header, consortium = envelope.header, self._own.book.current
        spec = (await self._rounds.find(header.round_id)).spec.body
        try:
            verify_key = consortium.roster.key_of(header.holder)
            self.key(header.holder, header.number, verify_key, spec.opened_at)
        except UnknownSession:
            body = SessionRefusal(
                authority=consortium.manifest.identity,
                node=self._own.name,
                holder=header.holder,
                number=max(1, header.number),
                envelope=envelope.digest,
            )
            return self._own.sign(body)
        raise RefusedOpening("the session is known")

    # Opening

    def prekey(self) -> bytes:
        """Return the newest prekey, signed.

        Raises:
            RefusedOpening: there is none.
        """
        now = self._own.clock()
        for each in reversed(self._secrets.prekeys):
            if each.public.is_valid(now):
                return self._own.sign(each.public).encode()
        raise RefusedOpening("this node has no prekey: seal boxes to it")

    async def open(self, encoded: bytes) -> Outcome | list[Outcome]:
        """Take one signed opening, or `{"documents": [...]}`, each of which is judged by itself.

        One is refused if a later session is open, or if its key is to no prekey that is valid.

        Raises:
            MalformedDocument: the body as a whole cannot be read; nothing was stored.
            StorageUnavailable: not all was stored.
        """
        documents = await asyncio.to_thread(documents_in, encoded, Role.HOLDER)
        read = await self._reading.submit_all([encoded] if documents is None else documents)
        opened = [each for each in read if not isinstance(each, ProtocolError)]
        committed = iter(await self._commits.submit_all(opened))
        outcomes = [each if isinstance(each, ProtocolError) else next(committed) for each in read]
        return outcomes[0] if documents is None else outcomes

    async def _read_all(self, documents: list[bytes]) -> list[_Opened | ProtocolError]:
        return await self._worker.run(lambda: [self._read(each) for each in documents])

    def _read(self, document: bytes) -> _Opened | ProtocolError:
        try:
            return self._checked(self._own.book.decode(document, Opening))
        except ProtocolError as error:
            return error

    def _checked(self, signed: Signed[Opening]) -> _Opened:
        now = self._own.clock()
        body, consortium = signed.body, self._own.book.current
        known = self._known.get(body.holder)
        if known is not None and known.opening != signed.digest and known.number >= body.number:
            raise RefusedOpening("a session of this number or a higher one was opened")
        consortium.verify(signed)
        if body.authority != consortium.manifest.identity:
            raise RefusedOpening("the opening is for another consortium")
        own = self._own_prekey(body.key_for(self._own.name).prekey, now)
        earliest = own.public.valid_from - CLOCKS_APART
        if not earliest.timestamp() <= body.number <= (now + CLOCKS_APART).timestamp():
            raise RefusedOpening("the session's number is not of the prekey's time")
        key = first_key(body, own.public, bytes.fromhex(own.private))
        verify_key = consortium.roster.key_of(body.holder)
        hour = body.number // STEP_SECONDS
        return body.holder, _Session(body.number, signed.digest, verify_key, hour, key)

    def _own_prekey(self, digest: str, now: datetime) -> OwnPrekey:
        for each in self._secrets.prekeys:
            if each.public.digest == digest and each.public.is_valid(now):
                return each
        raise RefusedOpening("the opening is to no prekey of this node that is valid")

    async def _commit(self, offered: list[_Opened]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        fresh: dict[int, _Session] = {}
        async with self._changing:
            for holder, session in offered:
                known = fresh.get(holder) or self._known.get(holder)
                if known is not None and known.opening == session.opening:
                    outcomes.append(200)
                elif known is not None and known.number >= session.number:
                    outcomes.append(RefusedOpening("a later session was opened"))
                else:
                    fresh[holder] = session
                    outcomes.append(201)
            await self._own.storage.run(_store, fresh, self._secrets)
            self._known.update(fresh)
            # One of them may have begun in an hour that is over.
            self._stepped_to = min([self._stepped_to, *(each.hour for each in fresh.values())])
        return outcomes

    # Erasing

    async def step(self) -> None:
        """Renew the prekey, and erase what has had its time."""
        if not self.are_kept:
            return
        async with self._changing:
            now = self._own.clock()
            renewed = self._renewed(now)
            if renewed is not self._secrets:
                await self._replace(renewed)
            hour = self._oldest_hour(now)
            if hour <= self._stepped_to:
                return
            try:
                await self._step_to(hour)
            except StorageUnavailable:
                log.warning("sessions wait for the store")

    def _renewed(self, now: datetime) -> Secrets:
        authority = self._own.book.current.manifest.identity
        return self._secrets.with_prekeys_at(now, authority=authority, node=self._own.name)

    def _oldest_hour(self, now: datetime) -> int:
        """Return the hour of the oldest round that may still take an envelope under a session."""
        opened = [
            known.spec.body.opened_at
            for known in self._rounds.live.values()
            if known.phase in TAKES_SHARES
            and known.spec.body.wrapping == "session"
            and now < known.spec.body.deadline
        ]
        return hour_of(min([now - CLOCKS_APART, *opened]))  # a round may yet be announced here

    async def _step_to(self, hour: int) -> None:
        keyed = (each for each in self._known.values() if each.key is not None)
        if any(each.hour < hour for each in keyed) or len(self._secrets.keys) > 1:
            await self._replace(self._secrets.with_next_key())
            stepped = await self._worker.run(_stepped, self._known, hour)
            await self._own.storage.run(_store, stepped, self._secrets)
            self._known = stepped
            await self._replace(self._secrets.without_old_keys())
        self._stepped_to = hour

    async def _replace(self, secrets: Secrets) -> None:
        await asyncio.to_thread(secrets.write, self._path)
        self._secrets = secrets


def _stepped(known: dict[int, _Session], hour: int) -> dict[int, _Session]:
    """Return all sessions with none of their keys before this hour, and without those lost."""
    return {
        holder: each
        if each.key is None
        else each._replace(
            hour=max(hour, each.hour), key=advance(each.key, max(0, hour - each.hour))
        )
        for holder, each in known.items()
    }


def _store(db: Connection, changed: dict[int, _Session], secrets: Secrets) -> None:
    rows = []
    for holder, each in changed.items():
        generation, box = (
            (-1, b"") if each.key is None else secrets.encrypt(each.key, each.place(holder))
        )
        rows.append(
            {
                "holder": holder,
                "number": each.number,
                "opening": each.opening,
                "verify_key": each.verify_key,
                "hour": each.hour,
                "generation": generation,
                "key": box,
            }
        )
    if rows:
        insert = insert_ignoring(db)(schema.sessions)
        names = [column.name for column in schema.sessions.columns if column.name != "holder"]
        changes = {name: getattr(insert.excluded, name) for name in names}
        db.execute(insert.on_conflict_do_update(index_elements=["holder"], set_=changes), rows)
