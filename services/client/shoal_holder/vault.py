"""The vault: answers the courier's questions, one after another.

It decides all that costs privacy. It verifies documents from the courier by the manifest versions
that it accepted itself and by its own clock. Unsigned messages can only end its part in a job or
round, or have the same bytes sent again.
"""

import sqlite3
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from shoal_holder import frames, ledger, spending
from shoal_holder.approvals import Approvals, owners_missing
from shoal_holder.backup import last_backup, sealed_backup
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.faults import Faults, VaultFailed
from shoal_holder.jobs import Jobs
from shoal_holder.keys import KeyFile
from shoal_holder.messages import (
    Agenda,
    Answer,
    Count,
    Event,
    Node,
    OnePart,
    Opened,
    OpenJob,
    Outcome,
    Parts,
    TwoParts,
    What,
    encoded,
    question_about,
)
from shoal_holder.policy import Policy
from shoal_holder.rounds import Rounds
from shoal_holder.site import Site
from shoal_holder.spending import StatedCost
from shoal_holder.state import State
from shoal_holder.status import (
    ADOPTED,
    RECORDS_NOT_TAKEN,
    RECORDS_TAKEN,
    JobStatus,
    count_adopted,
    read_jobs,
)
from shoal_kit.marks import LOSSES_ACCEPTED
from shoal_kit.outcome import ACKNOWLEDGED, LOST, PENDING
from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.jobs.membership import HolderQuery, Join, Leave
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.sharing.envelope import SIGNATURE_BYTES, receipt_query, sign_envelope
from shoal_protocol.trust.roster import key_fingerprint
from shoal_protocol.wire.documents import Role, sign, sign_again
from shoal_protocol.wire.encoding import Digest
from shoal_protocol.wire.errors import ProtocolError, UnknownRound


class Vault:
    """One data holder's records, keys, policy and state, accessible only by its verbs."""

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
        if losses := state.file.losses:
            self._report(LOSSES_ACCEPTED, losses=losses)
        if adopted := count_adopted(state.file):
            self._report(ADOPTED, rounds=adopted)
        self._takes_crowds = site.policy.maximum_local_epsilon is not None or (
            state.file.one("SELECT 1 FROM crowds LIMIT 1") is not None
        )
        verbs: list[Callable[..., Any]] = [
            *(self.opened, self.next_manifest, self.settle_charges, self.agenda, self.pending),
            *(self.acknowledged, self.spec, self.settle, self.signed, self.decide, self.backup),
            *(self._charges.query, self._charges.hear, self._jobs.offer, self._jobs.end_as_told),
            *(self._rounds.offer, self._rounds.prepare),
            # its owner's questions: all but leaving a job change nothing
            *(self.status, self.policy, self.spent, self.committed, self.chain),
            *(self._approvals.page, self._jobs.leave, state.joined, state.reserved),
        ]
        if self._takes_crowds:
            from shoal_holder.crowds.vault import CrowdVault  # only where the owner allows them

            verbs += CrowdVault(*own, self._charges, self._approvals).verbs()
            # for whoever restores this state, from a backup too: the highest ever stays
            state.file.write(
                "UPDATE machine SET crowds_epsilon = ?1 WHERE crowds_epsilon < ?1",
                site.policy.maximum_local_epsilon or 0.0,
            )
        self._verbs = {each.__qualname__: each for each in verbs}
        self._questions = {name: question_about(each) for name, each in self._verbs.items()}

    def first_answer(self) -> bytes:
        """Return the first frame, which answers `opened`."""
        return self.answer(frames.encode(question_about(Vault.opened)()))

    def answer(self, frame: bytes) -> bytes:
        """Return the answer to a question, both as frames, whatever happens.

        Work on records fails within `shoal_holder.faults.without_failing`. What fails elsewhere
        depends on none of them: the answer says that it failed, and the owner's list of faults why.
        """
        about = "a question"
        try:
            question = frames.decode(frame, self._questions)
            about = type(question).__name__
            verb = self._verbs[about]
            answer = Answer(parts=encoded(verb, verb(**dict(question))))
        except ProtocolError as error:
            answer = Answer(refused=error.code, why=str(error))
        except (sqlite3.Error, OSError) as error:
            # errors that Python itself makes have no name of SQLite's
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            answer = Answer(failed=True, why=f"the state cannot be read or written: {name}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 -- when a process ends is a message
            answer = self._failed(about, error)
        events, self._events = tuple(self._events), []
        try:
            return frames.encode(answer.model_copy(update={"events": events}))
        except ValueError as error:
            return frames.encode(self._failed(about, error))

    def _failed(self, about: str, error: BaseException) -> Answer:
        self._faults.write(f"no answer to {about}", error)
        return Answer(refused=VaultFailed.code, why=f"the vault failed at {about}")

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

    def next_manifest(self, parts: TwoParts) -> Opened:
        """Accept the version after the one in force, as the authority signed it, and its roster."""
        self._site.book.accept(*parts)
        return self.opened()

    def settle_charges(self) -> Opened:
        """Judge the nodes' charges: nothing is joined or answered before."""
        self._charges.settle()
        return self.opened()

    def agenda(self) -> Agenda:
        """Return the open jobs and rounds, and end those whose time is over."""
        self._take_new_records()
        self._jobs.end_those_over()
        rounds = tuple(self._rounds.agenda())
        jobs = self._state.open_jobs()
        return Agenda(
            jobs=tuple(OpenJob(job=each.job, next_number=each.next_number) for each in jobs),
            rounds=rounds,
            letters=(
                *((stage, job) for job, stage in self._approvals.notices().items()),
                *(("leave", job) for job in self._state.pending_letters("leave")),
                *(("join", job) for job in self._state.pending_letters("join")),
            ),
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

    def pending(self, what: What, about: Digest, node: Node = 0) -> Parts:
        """Return a job's join, leave or notice, or a round's envelope to a node, if unanswered.

        It is signed by the key in force, which may be newer than it is.
        """
        key, found = self._site.key, None
        match what:
            case "envelope":
                if envelope := self._state.envelope(about, node, PENDING):
                    found = sign_envelope(envelope[1][:-SIGNATURE_BYTES], key)
            case "join" | "leave":
                if found := self._state.pending_letters(what).get(about):
                    found = sign_again(found, Join if what == "join" else Leave, key)
            case "waits" | "approved" | "refused":
                found = self._approvals.notice(about, what)
        return () if found is None else (found,)

    def acknowledged(self, round_id: Digest, node: Node) -> Parts:
        """Return the receipt query for the envelope that a node acknowledged, if it did."""
        envelope, holder = self._state.envelope(round_id, node, ACKNOWLEDGED), self._site.holder
        return () if envelope is None or holder is None else (receipt_query(holder, envelope[0]),)

    def spec(self, round_id: Digest) -> Parts:
        """Return what a node needs that lost a round: its spec, and its job's request.

        Raises:
            UnknownRound
        """
        found: tuple[bytes, bytes] | None = self._state.file.one(
            "SELECT spec, request FROM rounds JOIN jobs USING (job)"
            " WHERE round = ? AND rounds.ended IS NULL",
            round_id,
        )
        if found is None:
            raise UnknownRound
        return found

    def settle(self, what: What, about: Digest, outcome: Outcome, node: Node = 0) -> None:
        """Note what became of something sent; "lost": a node no longer holds an envelope.

        Believed unsigned: to send the same bytes again, or no more, costs nobody privacy.
        """
        match what:
            case "envelope":
                if outcome == LOST:
                    self._state.send_again(about, node)
                else:
                    self._state.settle_envelope(about, node, outcome)
                self._rounds.end_if_over(about)
            case "join" | "leave":
                self._state.settle_letter(what, about, outcome)
            case "waits" | "approved" | "refused":
                self._approvals.settle_notice(about, what)

    def decide(self, parts: OnePart) -> None:
        """Take an owner's decision about a job, as a key signed it that the policy lists.

        Raises:
            ProtocolError: as `Approvals.take`.
        """
        job = self._approvals.take(parts[0])
        self._report("an owner has decided", job=job)

    def backup(self) -> Parts:
        """Return a backup for the owner, sealed to a key that is in neither process.

        Raises:
            ProtocolError: there is no recovery key, or a file cannot be read.
        """
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
            raise ProtocolError(str(error)) from error
        return (sealed,)

    def signed(self, what: Literal["query", "declaration"]) -> Parts:
        """Return what the data holder signs now; none if not enrolled, or it declares nothing."""
        site = self._site
        rules, holder = site.policy.declared, site.holder
        manifest, now = site.book.current.digest, site.clock()
        body: HolderQuery | HolderDeclaration
        if holder is not None and what == "query":
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
            return ()
        return (sign(body, Role.HOLDER, site.key).encode(),)

    def status(self) -> tuple[JobStatus, ...]:
        """Return the jobs that were joined, with their rounds."""
        return read_jobs(self._state.file)

    def policy(self) -> Policy:
        """Return the owner's rules."""
        return self._site.policy

    def spent(self) -> list[tuple[str, list[StatedCost]]]:
        """Return what answers cost, one by one, beside a bitmap of the clients alike in that."""
        return spending.spent_alike(self._state.file)

    def committed(self) -> dict[int, StatedCost]:
        """Return what each client has spent, with what open jobs reserve."""
        sums = self._state.committed()
        return sums.of(sums.charged)

    def chain(
        self, after: Count = 0, count: Annotated[int, Field(ge=1, le=10_000)] = 1000
    ) -> list[LedgerEntry]:
        """Return entries of the ledger from the one after number `after` on."""
        return ledger.entries(self._state.file, after=after, count=count)
