"""The data holder's sessions with Compute nodes: opens them, wraps shares, erases old keys.

The keys are in one small file, which is overwritten and replaced when they are stepped forward: a
database does not erase. A share of a round with sessions is stored as it was split, and wrapped
whenever it is sent: under the session that is then in force, or in a sealed box if there is none.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import Field, ValidationError

from shoal_holder import machine
from shoal_holder.contribution import answer_id, box_keys
from shoal_holder.messages import Answer, Done, Message
from shoal_holder.outbox import Waiting, pending_envelope
from shoal_holder.reporting import Report
from shoal_holder.sessions.messages import (
    AskSessions,
    OpeningReceipt,
    OpenSession,
    SessionsDue,
    ShowRefusal,
)
from shoal_holder.site import Site
from shoal_holder.state import State, Unwrapped
from shoal_hosting.outcome import ACKNOWLEDGED, PENDING
from shoal_hosting.private_files import replace_and_erase
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import ANSWER_BYTES, Header, seal
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.session_envelope import (
    SessionHeader,
    SessionWrapping,
    parse_under_session,
    seed_and_notice,
    share_digest,
    wrap,
)
from shoal_protocol.sharing.sessions import (
    STEP_SECONDS,
    Opening,
    Prekey,
    SessionRefusal,
    advance,
    hour_for,
    hour_of,
    open_session,
)
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind
from shoal_protocol.trust.limits import CLOCKS_APART
from shoal_protocol.wire.documents import Model, Role, decode, sign
from shoal_protocol.wire.encoding import Int64Vector
from shoal_protocol.wire.errors import MalformedDocument, UnknownRound
from shoal_protocol.wire.numbers import Count
from shoal_protocol.wire.service_errors import UnknownSession

FILE: Final = "sessions.json"
SOONEST: Final = timedelta(hours=1)  # between two openings, where a node lacks the session
_ANSWER_AT: Final = 5  # in a stored share, after its kind and the data holder's index
_PAYLOAD_AT: Final = _ANSWER_AT + ANSWER_BYTES
LONGEST: Final = timedelta(days=1)  # between two openings in any case


class _Chain(Model):
    """The key with one node, in hex, of an hour; and what the node said to the opening."""

    hour: Count
    key: str = Field(repr=False)
    outcome: str = PENDING


class _Session(Model):
    """The newest session, with those nodes that showed a prekey."""

    number: Count
    verify_key: str
    opening: str  # as it was signed
    chains: dict[str, _Chain]


class Sessions:
    """One data holder's newest session. Where the owner allows none, shares go in sealed boxes."""

    def __init__(self, site: Site, state: State, report: Report) -> None:
        """Go on with what is in the file; without one the next session is opened when it is due."""
        self._site, self._state, self._report = site, state, report
        self._path = state.file.directory / FILE
        self._session: _Session | None = None
        self._asks: dict[str, Sharing | None] = {}  # by job: how, if it asks for sessions
        with suppress(FileNotFoundError, ValidationError):
            self._session = _Session.model_validate_json(self._path.read_bytes())

    def handlers(self) -> dict[type[Message], Callable[[Any], Answer]]:
        """Return what answers the messages about sessions."""
        return {
            AskSessions: lambda _: self._told(),
            OpenSession: self._open,
            OpeningReceipt: self._receipt,
            ShowRefusal: self._refused,
        }

    # Opening

    def _told(self) -> SessionsDue:
        self._erase()
        if self._is_due(self._site.clock()):
            return SessionsDue(prekeys_of=tuple(sorted(self._nodes())))
        if self._session is None:
            return SessionsDue()
        waiting = [name for name, each in self._session.chains.items() if each.outcome == PENDING]
        known = {node.name for node in self._site.book.current.manifest.compute_nodes}
        opening = (self._session.opening.encode(),) if waiting else ()
        return SessionsDue(send_to=tuple(sorted(known.intersection(waiting))), parts=opening)

    def _is_due(self, now: datetime) -> bool:
        site, last = self._site, self._session
        if not site.policy.allow_sessions or site.holder is None or not self._is_asked_for():
            return False
        if last is None or last.verify_key != bytes(site.key.verify_key).hex():
            return True
        with_us = {
            name for name, each in last.chains.items() if each.outcome in (PENDING, ACKNOWLEDGED)
        }
        age = timedelta(seconds=now.timestamp() - last.number)
        return age >= (LONGEST if self._nodes() <= with_us else SOONEST)

    def _is_asked_for(self) -> bool:
        jobs = {each.job: each for each in self._state.open_jobs()}
        self._asks = {
            job: self._asks[job] if job in self._asks else _shared_by_sessions(each.request)
            for job, each in jobs.items()
        }
        return any(self._asks.values())

    def _nodes(self) -> set[str]:
        """Return the nodes that get shares of the answers to these jobs."""
        listed, holder = self._site.book.current.manifest.compute_nodes, self._site.holder
        return {
            listed[node].name
            for sharing in self._asks.values()
            if sharing is not None and holder is not None
            for node in sharing.members(holder=holder, nodes=len(listed))
        }

    def _open(self, asked: OpenSession) -> SessionsDue:
        """Open a session to the prekeys that are there.

        Raises:
            ProtocolError: one is no node's, or not valid.
        """
        site, last, now = self._site, self._session, self._site.clock()
        prekeys = [self._checked(each, now) for each in asked.parts]
        if prekeys and self._is_due(now) and site.holder is not None:
            opening, keys = open_session(
                prekeys,
                holder=site.holder,
                number=max(int(now.timestamp()), 1 if last is None else last.number + 1),
                previous=None if last is None else decode(last.opening.encode(), Opening).digest,
                random_bytes=site.random_bytes,
            )
            hour = opening.number // STEP_SECONDS
            self._keep(
                _Session(
                    number=opening.number,
                    verify_key=bytes(site.key.verify_key).hex(),
                    opening=sign(opening, Role.HOLDER, site.key).encode().decode(),
                    chains={name: _Chain(hour=hour, key=key.hex()) for name, key in keys.items()},
                )
            )
            self._report("session opened", nodes=len(keys))
        return self._told()

    def _checked(self, encoded: bytes, now: datetime) -> Prekey:
        signed, consortium = decode(encoded, Prekey), self._site.book.current
        consortium.verify(signed)
        prekey = signed.body
        if prekey.authority != consortium.manifest.identity:
            raise MalformedDocument("the prekey is of another consortium")
        if not prekey.valid_from - CLOCKS_APART <= now < prekey.valid_until:
            raise MalformedDocument("the prekey is not valid now")
        return prekey

    def _receipt(self, told: OpeningReceipt) -> Done:
        self._note(told.node, told.outcome)
        return Done()

    def _note(self, node: str, outcome: str) -> None:
        session = self._session
        if session is not None and node in session.chains:
            chain = session.chains[node].model_copy(update={"outcome": outcome})
            chains = session.chains | {node: chain}
            self._keep(session.model_copy(update={"chains": chains}))

    def _refused(self, shown: ShowRefusal) -> Done:
        """Believe a node that it lacks the session of an envelope which waits for it.

        Raises:
            UnknownRound, MalformedDocument: it is not about such an envelope.
            ProtocolError: it is not the node's word.
        """
        signed = decode(shown.parts[0], SessionRefusal)
        self._site.book.current.verify(signed)
        spec, refusal = self.spec_of(shown.round_id), signed.body
        found = pending_envelope(self._state, shown.round_id, shown.node)
        if found is None or found.session is None or shown.node >= len(spec.compute_nodes):
            raise MalformedDocument("nothing under a session waits for this node")
        encoded, session = self.wrapped(spec, shown.node, found), self._session
        name = spec.compute_nodes[shown.node]
        if session is None or self._chain_key(spec, name) is None:
            raise MalformedDocument("the envelope is not under a session")
        if (refusal.node, refusal.number) != (name, session.number) or (
            refusal.envelope != parse_under_session(encoded).digest
        ):
            raise MalformedDocument("the refusal is of another envelope")
        self._note(name, UnknownSession.code)
        self._report("a node does not know the session", node=shown.node)
        return Done()

    # Answers

    def spec_of(self, round_id: str) -> RoundSpec:
        """Return the spec of an open round.

        Raises:
            UnknownRound: there is none.
        """
        for each in self._state.open_rounds():
            if each.round_id == round_id:
                return decode(each.spec, RoundSpec).body
        raise UnknownRound

    def split(self, spec: RoundSpec, holder: int, noisy: Int64Vector) -> list[Unwrapped]:
        """Split an answer, shape (dimension,), into a share for each of its `members`, for good.

        A seed follows from the session with its node; where there is none, it is drawn.
        """
        epoch = machine.read(self._state.file).epoch
        fresh = self._site.random_bytes(32)
        answer = answer_id(self._site.key, spec.digest, noisy, fresh, epoch=epoch)
        nodes = len(spec.compute_nodes)
        numbers, seeds, notices = [], [], []
        for node in spec.sharing.members(holder=holder, nodes=nodes):
            derived = None
            if spec.sharing.kind_for(holder=holder, node=node, nodes=nodes) is ShareKind.SEED:
                derived = self._derived(spec, node, holder, answer)
                seeds.append(derived[0] if derived else self._site.random_bytes(SEED_BYTES))
            numbers.append(self._session.number if derived and self._session else 0)
            notices.append(derived[1] if derived else b"")
        following, index = iter(seeds), holder.to_bytes(4, "little")
        shares = spec.sharing.split(
            spec.sharing.encode(noisy),
            holder=holder,
            nodes=nodes,
            random_bytes=lambda _: next(following),
        )
        return [
            Unwrapped(
                digest=share_digest(spec.digest, answer, share),
                content=bytes([share.kind]) + index + answer + share.payload + notice,
                session=number,
            )
            for share, number, notice in zip(shares, numbers, notices, strict=True)
        ]

    def _derived(
        self, spec: RoundSpec, node: int, holder: int, answer: bytes
    ) -> tuple[bytes, bytes] | None:
        """Return the seed that follows from the session, and its envelope; None without one."""
        key = self._chain_key(spec, spec.compute_nodes[node])
        if key is None or self._session is None:
            return None
        header = SessionHeader(
            SessionWrapping.NOTICE, node, holder, self._session.number, spec.digest, answer
        )
        return seed_and_notice(header, key, manifest=spec.manifest)

    def wrapped(self, spec: RoundSpec, node: int, waiting: Waiting) -> bytes:
        """Return the envelope of a stored share, as it is to be sent now."""
        content, site = waiting.envelope, self._site
        kind = ShareKind(content[0])
        end = _PAYLOAD_AT + SEED_BYTES if kind is ShareKind.SEED else len(content)
        share, notice = Share(kind, content[_PAYLOAD_AT:end]), content[end:]
        holder = int.from_bytes(content[1:_ANSWER_AT], "little")
        answer = content[_ANSWER_AT:_PAYLOAD_AT]
        key, session = self._chain_key(spec, spec.compute_nodes[node]), self._session
        if key is None or session is None:
            header = Header(kind, node, holder, spec.manifest, spec.digest, answer)
            return seal(
                share,
                header,
                box_key=box_keys(site.book.get(spec.manifest))[node],
                key=site.key,
                random_bytes=site.random_bytes,
            )
        wrapping = SessionWrapping.VECTOR
        if kind is ShareKind.SEED:
            derived = waiting.session == session.number
            if derived and notice:  # a seed that an earlier release derived is without
                return notice
            wrapping = SessionWrapping.NOTICE if derived else SessionWrapping.SEED
        place = SessionHeader(wrapping, node, holder, session.number, spec.digest, answer)
        return wrap(share, place, key=key, manifest=spec.manifest)

    def _chain_key(self, spec: RoundSpec, name: str) -> bytes | None:
        """Return the chain's key with a node for a round; None if there is none."""
        session = self._session
        if session is None or not self._site.policy.allow_sessions:
            return None
        if session.verify_key != bytes(self._site.key.verify_key).hex():
            return None
        chain, hour = session.chains.get(name), hour_for(session.number, spec.opened_at)
        if chain is None or chain.outcome != ACKNOWLEDGED or chain.hour > hour:
            return None
        return advance(bytes.fromhex(chain.key), hour - chain.hour)

    # Erasing

    def _erase(self) -> None:
        """Step the keys forward to the hour of the oldest round that is open here."""
        session, now = self._session, self._site.clock() - CLOCKS_APART
        if session is None or all(each.hour >= hour_of(now) for each in session.chains.values()):
            return
        open_rounds = [decode(each.spec, RoundSpec).body for each in self._state.open_rounds()]
        opened = [each.opened_at for each in open_rounds if each.wrapping == "session"]
        hour = hour_of(min([now, *opened]))
        if any(each.hour < hour for each in session.chains.values()):
            chains = {name: _stepped(each, hour) for name, each in session.chains.items()}
            self._keep(session.model_copy(update={"chains": chains}))

    def _keep(self, session: _Session) -> None:
        replace_and_erase(self._path, session.model_dump_json().encode())
        self._session = session


def _shared_by_sessions(request: bytes) -> Sharing | None:
    body = decode(request, JobRequest).body
    return body.sharing if body.wrapping == "session" else None


def _stepped(chain: _Chain, hour: int) -> _Chain:
    key = advance(bytes.fromhex(chain.key), max(0, hour - chain.hour))
    return chain.model_copy(update={"hour": max(hour, chain.hour), "key": key.hex()})
