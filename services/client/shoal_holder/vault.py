"""The vault: answers the courier's messages, one after another.

It decides all that costs privacy. It verifies documents from the courier by the manifest versions
that it accepted itself and by its own clock. Unsigned messages can only end its part in a job or
round, or have the same bytes sent again.
"""

import sqlite3
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from shoal_holder import frames, ledger, machine, messages, spending
from shoal_holder.approvals import Approvals, JobAsking, owners_missing
from shoal_holder.backup import last_backup, sealed_backup
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.crowds.status import CrowdAccounts, CrowdStatus
from shoal_holder.faults import Faults, VaultFailed
from shoal_holder.jobs import Jobs
from shoal_holder.keys import KeyFile
from shoal_holder.messages import (
    Acknowledged,
    Agenda,
    Answer,
    Ask,
    AskAgenda,
    AskBackup,
    AskCharges,
    AskSigned,
    AskSpec,
    Bytes,
    Decide,
    Done,
    EndJob,
    Event,
    Failure,
    Heard,
    Hello,
    Message,
    NextManifest,
    OfferJob,
    OfferRound,
    Opened,
    OpenJob,
    Pending,
    Prepare,
    Receipt,
    Refusal,
    SettleCharges,
    ShowCharges,
)
from shoal_holder.policy import Policy
from shoal_holder.rounds import Rounds
from shoal_holder.site import Site
from shoal_holder.spending import StatedCost
from shoal_holder.state import Joined, ReservedBudget, State
from shoal_holder.status import (
    ADOPTED,
    RECORDS_NOT_TAKEN,
    RECORDS_TAKEN,
    JobStatus,
    count_adopted,
    read_jobs,
)
from shoal_hosting.marks import LOSSES_ACCEPTED
from shoal_hosting.outcome import LOST
from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.jobs.membership import HolderQuery, Join, Leave
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.sharing.envelope import SIGNATURE_BYTES, receipt_query, sign_envelope
from shoal_protocol.trust.roster import key_fingerprint
from shoal_protocol.wire.documents import Role, sign, sign_again
from shoal_protocol.wire.errors import ProtocolError, UnknownRound

TOLD: Final[dict[str, TypeAdapter[Any]]] = {
    "status": TypeAdapter(tuple[JobStatus, ...]),
    "policy": TypeAdapter(Policy),
    "approvals": TypeAdapter(list[JobAsking]),
    "spent": TypeAdapter(list[tuple[str, list[StatedCost]]]),  # of whom: a bitmap
    "committed": TypeAdapter(dict[int, StatedCost]),
    "chain": TypeAdapter(list[LedgerEntry]),
    "reserved": TypeAdapter(list[ReservedBudget]),
    "joined": TypeAdapter(Joined),
    "leave": TypeAdapter(Joined),
    "crowds": TypeAdapter(tuple[CrowdStatus, ...]),
    "spent on crowds": TypeAdapter(CrowdAccounts),
}
"""What each of the owner's questions is answered with."""


class Vault:
    """One data holder's records, keys, policy and state, accessible only by messages."""

    def __init__(
        self,
        site: Site,
        state: State,
        *,
        isolation: str,
        without_nodes: Collection[str],
        key_file: KeyFile | None = None,
        owner_files: Mapping[str, Path] | None = None,
        renew: Callable[[], bool] = lambda: False,
    ) -> None:
        """Answer for a site; `isolation` says what of the network this process is without.

        Compute nodes in `without_nodes` are not asked what they charged. `key_file` is closed with
        the vault. A backup holds `owner_files`, and is sealed to the recovery key among them.
        `renew` has the site go over to new records, and tells whether there were any.
        """
        self._owner_files = owner_files or {}
        self._renew = renew
        self._records_fault: str | None = None
        self._key_file = key_file
        self._site = site
        self._state = state
        self._isolation = isolation
        self._events: list[Event] = []
        self._faults = Faults(state.file.path.parent, site.clock)
        own = (site, state, self._report, self._faults)
        self._charges = ChargeComparison(*own, frozenset(without_nodes))
        self._approvals = Approvals(site, state.file)
        self._jobs = Jobs(*own, self._charges, self._approvals)
        self._rounds = Rounds(*own, self._charges)
        self._handlers: dict[type[Message], Callable[[Any], Answer]] = {
            Hello: lambda _: self.opened(),
            NextManifest: self._next_manifest,
            AskCharges: self._charges.query,
            ShowCharges: lambda asked: Heard(more=self._charges.hear(asked.node, asked.parts[0])),
            SettleCharges: self._settle_charges,
            AskAgenda: self._agenda,
            OfferJob: self._jobs.offer,
            EndJob: self._jobs.end_as_told,
            OfferRound: self._rounds.offer,
            Prepare: lambda asked: self._rounds.prepare(asked.round_id),
            Pending: self._pending,
            Acknowledged: self._acknowledged,
            AskSpec: self._spec,
            Receipt: self._receipt,
            Decide: self._decide,
            AskBackup: self._backup,
            AskSigned: self._signed,
            Ask: self._told,
        }
        if losses := state.file.losses:
            self._report(LOSSES_ACCEPTED, losses=losses)
        if adopted := count_adopted(state.file):
            self._report(ADOPTED, rounds=adopted)
        self._requests: Mapping[str, type[Message]] = messages.REQUESTS
        self._crowd_answers: dict[str, Callable[[], Any]] = {
            "crowds": tuple,
            "spent on crowds": lambda: CrowdAccounts((), None),
        }
        self._takes_crowds = site.policy.maximum_local_epsilon is not None or (
            state.file.one("SELECT 1 FROM crowds LIMIT 1") is not None
        )
        if self._takes_crowds:
            self._load_crowds()
            # for whoever restores this state
            machine.note_crowds(state.file, site.policy.maximum_local_epsilon or 0.0)

    def _load_crowds(self) -> None:
        from shoal_holder.crowds import allowance, memory  # only where the owner allows them
        from shoal_holder.crowds.messages import REQUESTS
        from shoal_holder.crowds.vault import CrowdVault

        self._crowd_answers = {
            "crowds": lambda: memory.statuses(self._state),
            "spent on crowds": lambda: allowance.so_far(self._state, self._site),
        }
        self._requests = {**self._requests, **REQUESTS}
        own = (self._site, self._state, self._report, self._faults)
        self._handlers |= CrowdVault(*own, self._charges, self._approvals).handlers()

    def answer(self, frame: bytes) -> bytes:
        """Return the answer to a message, both as frames, whatever happens.

        Work on records fails within `shoal_holder.faults.without_failing`. What fails elsewhere
        depends on none of them: the answer says that it failed, and the owner's list of faults why.
        """
        about = "a message"
        try:
            request = frames.decode(frame, self._requests)
            about = type(request).__name__
            answer = self._handlers[type(request)](request)
        except ProtocolError as error:
            answer = Refusal(code=error.code, detail=str(error))
        except (sqlite3.Error, OSError) as error:
            # errors that Python itself makes have no name of SQLite's
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            answer = Failure(reason=f"the state cannot be read or written: {name}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 -- when a process ends is a message
            answer = self._failed(about, error)
        events, self._events = tuple(self._events), []
        try:
            return frames.encode(answer.model_copy(update={"events": events}))
        except ValueError as error:
            return frames.encode(self._failed(about, error))

    def _failed(self, about: str, error: BaseException) -> Refusal:
        self._faults.write(f"no answer to {about}", error)
        return Refusal(code=VaultFailed.code, detail=f"the vault failed at {about}")

    def close(self) -> None:
        """Close the state. Nothing is written: whatever was done is on disk already."""
        self._state.close()
        if self._key_file is not None:
            self._key_file.close()  # the state first: who locks the key next finds it free

    def _report(self, event: str, /, **facts: object) -> None:
        self._events.append(Event.model_validate({"name": event, "facts": facts}))

    def opened(self) -> Opened:
        """Return how many slots are here, and how this process is isolated."""
        backup_at, is_due = last_backup(self._state.file)
        shut_out = self._site.shut_out
        return Opened(
            isolation=self._isolation,
            key=key_fingerprint(bytes(self._site.key.verify_key)),
            enrolled=len(self._site.positions()),
            sequence=self._site.book.current.manifest.sequence,
            takes_crowds=self._takes_crowds,
            charging_nodes=tuple(self._charges.nodes),
            waiting_for=tuple(self._charges.waiting),
            refusal=shut_out or self._charges.refusal,
            is_shut_out=shut_out is not None,
            adopted=count_adopted(self._state.file),
            losses=self._state.file.losses,
            backup_at=backup_at,
            backup_due=is_due,
            records_fault=self._records_fault,
            owners_missing=owners_missing(self._site.policy),
        )

    def _next_manifest(self, asked: NextManifest) -> Opened:
        self._site.book.accept(*asked.parts)
        return self.opened()

    def _settle_charges(self, _: SettleCharges) -> Opened:
        self._charges.settle()
        return self.opened()

    def _agenda(self, _: AskAgenda) -> Agenda:
        self._take_new_records()
        self._jobs.end_those_over()
        rounds = tuple(self._rounds.agenda())
        jobs = self._state.open_jobs()
        return Agenda(
            jobs=tuple(OpenJob(job=each.job, next_number=each.next_number) for each in jobs),
            rounds=rounds,
            joins=tuple(self._state.pending_letters("join")),
            leaves=tuple(self._state.pending_letters("leave")),
            notices=self._approvals.notices(),
            waiting=self._approvals.waiting(),
        )

    def _take_new_records(self) -> None:
        """Go over to new records, between two answers; open jobs ask these from then on."""
        try:
            if self._renew():
                self._records_fault = None
                self._report(RECORDS_TAKEN)
        except ValueError as error:
            self._records_fault = str(error)
            self._report(RECORDS_NOT_TAKEN, reason=self._records_fault)

    def _pending(self, asked: Pending) -> Bytes:
        """Return what is to be sent, signed by the key in force, which may be a newer one."""
        key, found = self._site.key, None
        match asked.what:
            case "envelope":
                if found := self._state.pending_envelope(asked.about, asked.node):
                    found = sign_envelope(found[:-SIGNATURE_BYTES], key)
            case "join" | "leave":
                if found := self._state.pending_letters(asked.what).get(asked.about):
                    found = sign_again(found, Join if asked.what == "join" else Leave, key)
            case "waits" | "approved" | "refused":
                found = self._approvals.notice(asked.about, asked.what)
        return _bytes(found)

    def _acknowledged(self, asked: Acknowledged) -> Bytes:
        digest = self._state.acknowledged_envelope(asked.round_id, asked.node)
        holder = self._site.holder
        if digest is None or holder is None:
            return _bytes(None)
        return _bytes(receipt_query(holder, digest))

    def _spec(self, asked: AskSpec) -> Bytes:
        for each in self._state.open_rounds():
            if each.round_id == asked.round_id:
                return Bytes(parts=(each.spec, each.request))
        raise UnknownRound

    def _receipt(self, told: Receipt) -> Done:
        match told.what:
            case "envelope":
                if told.outcome == LOST:
                    self._state.send_again(told.about, told.node)
                else:
                    self._state.settle_envelope(told.about, told.node, told.outcome)
                self._rounds.end_if_over(told.about)
            case "join" | "leave":
                self._state.settle_letter(told.what, told.about, told.outcome)
            case "waits" | "approved" | "refused":
                self._approvals.settle_notice(told.about, told.what)
        return Done()

    def _decide(self, asked: Decide) -> Done:
        job = self._approvals.take(asked.parts[0])
        self._report("an owner has decided", job=job)
        return Done()

    def _backup(self, _: AskBackup) -> Bytes | Refusal:
        try:
            sealed = sealed_backup(
                self._state.file,
                self._owner_files,
                slots=self._site.slots_ever,
                authority=self._site.book.current.manifest.identity,
                key=self._site.key,
                now=self._site.clock(),
            )
        except (ValueError, OSError) as error:
            return Refusal(code="no-backup", detail=str(error))
        return _bytes(sealed)

    def _signed(self, asked: AskSigned) -> Bytes:
        site = self._site
        rules, holder = site.policy.declared, site.holder
        manifest, now = site.book.current.digest, site.clock()
        body: HolderQuery | HolderDeclaration
        if holder is not None and asked.what == "query":
            body = HolderQuery(manifest=manifest, holder=holder, at=now)
        elif holder is not None and rules is not None:
            body = HolderDeclaration(
                manifest=manifest,
                holder=holder,
                declared_at=now,
                variables=tuple(sorted(set(rules.columns) & set(site.records.columns))),
                rules=rules,
                without_owners=owners_missing(site.policy) is not None,
            )
        else:
            return Bytes()
        return _bytes(sign(body, Role.HOLDER, site.key).encode())

    def _told(self, asked: Ask) -> Bytes:
        """Answer a question of the owner; all but leaving a job change nothing.

        Raises:
            UnknownJob, WrongPhase: as `State.joined` and `Jobs.leave`.
        """
        state, file, job = self._state, self._state.file, asked.job or ""
        after, count = asked.after, asked.count
        answers: dict[str, Callable[[], Any]] = {
            "status": lambda: read_jobs(file),
            "policy": lambda: self._site.policy,
            "approvals": lambda: self._approvals.page(after=after, count=count, job=asked.job),
            "spent": lambda: spending.spent_alike(file),
            "committed": lambda: (sums := state.committed()).of(sums.charged),
            "chain": lambda: ledger.entries(file, after=after, count=count),
            "reserved": state.reserved,
            "joined": lambda: state.joined(job),
            "leave": lambda: self._jobs.leave(job),
        } | self._crowd_answers
        return Bytes(parts=(TOLD[asked.question].dump_json(answers[asked.question]()),))


def _bytes(found: bytes | None) -> Bytes:
    return Bytes(parts=() if found is None else (found,))
