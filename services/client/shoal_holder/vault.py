"""The vault: a mailbox. Signed documents go in, addressed letters come out.

The courier asks by `due` for letters to carry, and brings the answers back by `settle`. By `take`
it hands in documents that arrive unasked. The owner's questions and commands come by `ask`. The
vault decides all that costs privacy. It verifies documents by the manifest versions that it
accepted itself and by its own clock. Unsigned answers only end its part in a job or round, have the
same bytes sent again, or say what to ask for next.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import Field

from shoal_holder import frames, journal, spending
from shoal_holder.approvals import Approvals, owners_missing
from shoal_holder.backup import last_backup, sealed_backup
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.faults import Faults, VaultFailed
from shoal_holder.jobs import Jobs
from shoal_holder.keys import KeyFile
from shoal_holder.letters import Draft, Effects, Settled, stays
from shoal_holder.messages import (
    Answer,
    Count,
    Event,
    Letter,
    LetterId,
    Octets,
    Opened,
    Status,
    answer_to,
    question_about,
)
from shoal_holder.policy import Policy
from shoal_holder.rounds import Rounds
from shoal_holder.site import Site
from shoal_holder.spending import StatedCost
from shoal_holder.state import State
from shoal_holder.status import JobStatus, read_jobs
from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.journal import Shown
from shoal_protocol.trust.roster import key_fingerprint
from shoal_protocol.wire.documents import Role, sign
from shoal_protocol.wire.errors import ProtocolError, UnknownManifest, UnknownRound

if TYPE_CHECKING:
    from shoal_holder.crowds.jobs import CrowdJobs

MOST_BYTES: Final = 16 << 20
"""Letters are handed over until they have so many: all at once could be more than a frame holds."""
Value = TypeVar("Value")


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
    ) -> None:
        """Answer for a site; `isolation` says what of the network this process is without.

        Compute nodes in `without_nodes` are not asked what they charged. `key_file` is closed with
        the vault. A backup holds `owner_files`, and is sealed to the recovery key among them.
        """
        self._owner_files = owner_files or {}
        self._judged: str | None = None
        """Under which version of the manifest the trainer judged a declaration."""
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
        self._crowds: CrowdJobs | None = None
        self._effects = self._effects_of_answers()
        self._takes_crowds = site.policy.maximum_local_epsilon is not None or (
            state.file.one("SELECT 1 FROM jobs WHERE opening IS NOT NULL LIMIT 1") is not None
        )
        verbs: list[Callable[..., Any]] = [
            *(self.take, self.due, self.settle),
            # `ask`: the owner's questions; leaving a job and a backup change something
            *(self.opened, self.status, self.policy, self.spent, self.committed, self.chain),
            *(self._approvals.page, self._jobs.judged, self._jobs.request, state.reserved),
            *(self._jobs.leave, self.backup),
        ]
        if self._takes_crowds:
            from shoal_holder.crowds import jobs as crowd_jobs  # only where the owner allows them

            self._crowds = crowd_jobs.CrowdJobs(*own, self._charges, self._approvals)
            self._effects |= self._crowds.effects()
            verbs.append(self._crowds.standing)
            # for whoever restores this state, from a backup too: the highest ever stays
            state.file.write(
                "UPDATE machine SET crowds_epsilon = ?1 WHERE crowds_epsilon < ?1",
                site.policy.maximum_local_epsilon or 0.0,
            )
        self._verbs = {each.__qualname__: each for each in verbs}
        self._questions = {name: question_about(each) for name, each in self._verbs.items()}

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
            value = verb(**dict(question))
            self._state.file.settle()  # marks what could not be marked before
            answer = answer_to(verb).model_construct(value=value)
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
            is_compared=self._charges.compared_at is not None,
            refusal=shut_out or self._charges.refusal,
            is_shut_out=shut_out is not None,
            backup_at=backup_at,
            backup_due=is_due,
            owners_missing=owners_missing(self._site.policy),
        )

    def take(self, document: Octets, roster: Octets = b"") -> None:
        """Take the manifest that follows the one in force, with its roster; or an owner's decision.

        All other documents come in the answers to letters.

        Raises:
            ProtocolError: its author did not sign it, or nothing comes of it.
        """
        if roster:
            self._site.book.accept(document, roster)
        else:
            self._report("an owner has decided", job=self._approvals.take(document))

    def due(self, without: tuple[LetterId, ...] = ()) -> tuple[Letter, ...] | None:
        """Return the letters that may leave now, without those that the courier has at hand.

        One without a body asks for something; whatever comes of it is settled like any other. If
        there are none, answer one round, or do a crowd job's next piece of work, and return None
        at the moment when what comes of it may leave. That moment follows from public numbers, so
        no letter shows when its noise was drawn.
        What the owner asked meanwhile is answered before the next call returns the letters.
        """
        self._jobs.end_those_over()
        self._rounds.look()
        self._charges.settle()
        charges = self._charges.letters(joining=bool(self._jobs.wanted))
        parts: dict[str, Iterator[Draft]] = {"charges": charges}
        if self._is_at_work:
            parts |= {"declaration": self._declaration(), "approvals": self._approvals.letters()}
            parts |= {"jobs": self._jobs.letters(), "rounds": self._rounds.letters()}
            if self._crowds is not None:
                parts["crowds"] = self._crowds.letters()
        letters = self._handed(parts, without)
        if not letters and self._is_at_work:
            for what, work in self._work():
                if self._without_failing(what, work):
                    return None
        return letters

    def _work(self) -> Iterator[tuple[str, Callable[[], bool]]]:
        """Yield what is to be worked out from records, the answers to rounds first."""
        for round_id in self._rounds.unprepared():
            yield f"answer to {round_id}", partial(self._rounds.prepare, round_id)
        if self._crowds is not None:
            for job in self._crowds.turns():
                yield f"contribution to {job}", partial(self._crowds.take_turn, job)

    @property
    def _is_at_work(self) -> bool:
        """Tell whether jobs are joined and answered at all."""
        is_refused = self._charges.refusal is not None or self._site.shut_out is not None
        return self._charges.compared_at is not None and not is_refused

    def _handed(
        self, parts: Mapping[str, Iterator[Draft]], without: Collection[str] = ()
    ) -> tuple[Letter, ...]:
        """Return letters; one that cannot be made keeps no other one back.

        Those for which a frame has no room are due once the courier has the others at hand.
        """
        drafts = [
            self._without_failing(f"letters of {name}", partial(list[Draft], part)) or []
            for name, part in parts.items()
        ]
        letters: list[Letter] = []
        for each in chain.from_iterable(drafts):
            if each.id not in without and sum(len(one.body) for one in letters) < MOST_BYTES:
                made = self._without_failing(f"letter {each.id}", each.letter)
                letters += () if made is None else (made,)
        return tuple(letters)

    def _without_failing(self, what: str, work: Callable[[], Value]) -> Value | None:
        """Return what some work makes; None if it fails, which the owner alone is told.

        Raises:
            sqlite3.Error, OSError: the state cannot be read or written.
        """
        try:
            return work()
        except ProtocolError as error:
            self._report("not made", what=what, reason=str(error))
        except (sqlite3.Error, OSError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 -- when a process ends is a message
            self._faults.write(f"no {what}", error)
        return None

    def settle(self, letter: LetterId, status: Status, body: Octets) -> bool:
        """Note the answer to a letter; tell whether it is one to what was asked.

        Raises:
            ProtocolError: the answer is not what it should be, or nothing comes of it.
        """
        settled = Settled.of(letter, status, body)
        if settled.kind not in self._effects:
            raise UnknownRound("no such letter was sent")
        return self._effects[settled.kind][settled.column](settled) is not False

    def _effects_of_answers(self) -> dict[str, Effects]:
        """Return what answers to each kind of letter do, by `Settled.column`.

        Nobody signs an answer. A document in it counts by the signature of its author. All else in
        it ends this data holder's part in something, has the same bytes sent again, or says what to
        ask for next.
        """
        charges, jobs, rounds = self._charges, self._jobs, self._rounds
        told = self._approvals.settle_notice
        return {
            # taken, not found, refused otherwise, not answered
            "join": (jobs.note, stays, jobs.note, stays),
            "leave": (jobs.note, stays, jobs.note, stays),
            "waits": (told, stays, told, stays),
            "approved": (told, stays, told, stays),
            "refused": (told, stays, told, stays),
            "envelope": (rounds.note, rounds.hand_on, rounds.note, rounds.unreached),
            "receipt": (rounds.hear_stored, rounds.hand_on, stays, rounds.unreached),
            "spec": (rounds.handed_on, stays, rounds.handed_on, stays),
            "request": (rounds.handed_on, stays, rounds.handed_on, stays),
            "charges": (charges.answered, stays, charges.doubt, charges.unreached),
            "declaration": (self._declared, stays, self._declared, stays),
            "jobs": (jobs.list_jobs, stays, stays, stays),
            "round": (rounds.offer, jobs.end_as_told, jobs.end_as_told, stays),
            "job": (jobs.offer, jobs.unlist, jobs.refuse, stays),
        }

    def backup(self) -> Octets:
        """Return a backup for the owner, sealed to a key that is in neither process.

        Raises:
            ProtocolError: there is no recovery key, or a file cannot be read.
        """
        try:
            return sealed_backup(
                self._state.file,
                self._owner_files,
                slots=self._site.slots_ever,
                authority=self._site.book.current.manifest.identity,
                key=self._site.key,
                now=self._site.clock(),
            )
        except (ValueError, OSError) as error:
            raise ProtocolError(str(error)) from error

    def _declaration(self) -> Iterator[Draft]:
        """Yield what this data holder declares, until the trainer has judged it."""
        site, rules, holder = self._site, self._site.policy.declared, self._site.holder
        current, trainer = site.book.current, site.book.current.manifest.trainer.name
        if current.digest == self._judged or holder is None or rules is None:
            return
        body = HolderDeclaration(
            manifest=current.digest,
            holder=holder,
            declared_at=site.clock(),
            variables=tuple(sorted(set(rules.columns) & set(site.records.columns))),
            rules=rules,
            without_owners=owners_missing(site.policy) is not None,
        )
        signed = sign(body, Role.HOLDER, site.key).encode()
        yield Draft(f"declaration/{current.digest}", trainer, "/v1/declarations", signed)

    def _declared(self, settled: Settled) -> None:
        """Note the trainer's answer to a declaration."""
        self._report("declaration settled", outcome=settled.outcome)
        if settled.code != UnknownManifest.code:  # else one of both is behind
            self._judged = settled.about

    def status(self) -> tuple[JobStatus, ...]:
        """Return the jobs that were joined, with their rounds."""
        return read_jobs(self._state.file)

    def policy(self) -> Policy:
        """Return the owner's rules."""
        return self._site.policy

    def spent(self) -> dict[Count, StatedCost]:
        """Return what each client has spent."""
        sums = spending.spent(self._state.file)
        return sums.of(sums.charged)

    def committed(self) -> dict[Count, StatedCost]:
        """Return what each client has spent, with what open jobs reserve."""
        sums = self._state.committed()
        return sums.of(sums.charged)

    def chain(
        self, after: Count = 0, count: Annotated[int, Field(ge=1, le=10_000)] = 1000
    ) -> list[Shown]:
        """Return entries of the journal from the one after number `after` on."""
        return journal.entries(self._state.file, after=after, count=count)
