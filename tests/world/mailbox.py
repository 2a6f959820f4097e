"""A vault behind five verbs, whatever messages carry them: all that a courier can do, or lie.

`interests` are what the vault would have fetched, `take` puts in a document of which nothing is
believed, `due` is all that it has to send, `settle` says what became of it, and its owner may
`ask`.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from shoal_agent.data_holder import DataHolder
from shoal_holder import frames, messages
from shoal_holder.messages import (
    Agenda,
    Ask,
    AskAgenda,
    AskCharges,
    Bytes,
    ChargesAsked,
    Decide,
    Decided,
    Done,
    EndJob,
    Failure,
    Heard,
    Hello,
    Message,
    NextManifest,
    OfferJob,
    OfferRound,
    Opened,
    Pending,
    Prepare,
    Receipt,
    Refusal,
    SettleCharges,
    ShowCharges,
)
from tests.world.around_holder import vault_of

ANSWERS: Final[dict[str, Any]] = messages.kinds_of(
    *(Done, Refusal, Failure, Opened, Decided, Bytes, Agenda, ChargesAsked, Heard)
)
Kind = Literal["job", "round", "manifest", "decision", "charges", "end"]


@dataclass(frozen=True)
class Interests:
    """What a vault would have fetched: rounds of these jobs, and what these nodes charged."""

    jobs: tuple[str, ...]
    approvals: tuple[str, ...]  # jobs that owners have yet to decide about
    charges: dict[str, bytes]  # by node, the signed question


@dataclass(frozen=True)
class Taken:
    """Whether a document was taken; `why` is a refusal's code, or the vault's reason."""

    yes: bool
    why: str = ""


@dataclass(frozen=True)
class Due:
    """Something to be sent: a join, leave or notice of a job, or a round's envelope to a node."""

    what: Any
    about: str
    node: int
    content: bytes = field(repr=False)


class Mailbox:
    """One data holder's vault, which runs in this process."""

    def __init__(self, holder: DataHolder, nodes: Collection[str]) -> None:
        self.vault = vault_of(holder)
        self._nodes = list(nodes)

    def interests(self) -> Interests:
        """Return what the vault would have fetched for it."""
        agenda, questions = self._tell(AskAgenda()), dict[str, bytes]()
        for node in self._nodes:
            asked = self._tell(AskCharges(node=node))
            if isinstance(asked, ChargesAsked):
                [questions[node]] = asked.parts
        return Interests(tuple(each.job for each in agenda.jobs), agenda.waiting, questions)

    def take(self, kind: Kind, *documents: bytes, about: str = "") -> Taken:
        """Put in a document; `about` is the job, or the node whose charges these are."""
        message: Message
        match kind:
            case "job":
                message = OfferJob(job=about, parts=(documents[0],))
            case "round":
                message = OfferRound(parts=(documents[0],))
            case "manifest":
                message = NextManifest(parts=(documents[0], documents[1]))
            case "decision":
                message = Decide(parts=(documents[0],))
            case "charges":
                message = ShowCharges(node=about, parts=(documents[0],))
            case "end":
                message = EndJob(job=about, code="wrong-phase", parts=documents)
        answer = self._tell(message)
        if isinstance(answer, Refusal):
            return Taken(False, answer.code)
        if kind == "charges":
            self._tell(SettleCharges())
        return Taken(answer.taken, answer.reason or "") if kind in ("job", "round") else Taken(True)

    def due(self) -> list[Due]:
        """Have the vault make what it owes, and return all that it has to send."""
        agenda = self._tell(AskAgenda())
        wanted: list[tuple[Any, str, int]] = [("join", job, 0) for job in agenda.joins]
        wanted += [("leave", job, 0) for job in agenda.leaves]
        wanted += [(what, job, 0) for job, what in agenda.notices.items()]
        for each in agenda.rounds:
            if each.unprepared:
                self._tell(Prepare(round_id=each.round_id))
            wanted += [("envelope", each.round_id, node) for node in range(len(self._nodes))]
        return [due for each in wanted for due in self.waiting(*each)]

    def waiting(self, what: Any, about: str, node: int = 0) -> list[Due]:
        """Return what is to be sent about a job or round, if there is anything."""
        answer = self._tell(Pending(what=what, about=about, node=node))
        return [Due(what, about, node, each) for each in answer.parts]

    def settle(self, what: Any, about: str, outcome: str, *, node: int = 0) -> None:
        """Say what became of something that was to be sent; nobody can tell whether that is so."""
        self._tell(Receipt(what=what, about=about, outcome=outcome, node=node))

    def ask(self, question: Any, **about: Any) -> Any:
        """Return the answer to its owner's question."""
        answer = self._tell(Ask(question=question, **about))
        return json.loads(answer.parts[0]) if isinstance(answer, Bytes) else answer

    def version(self) -> tuple[int, int]:
        """Return the number of the manifest in force, and how many slots are enrolled under it."""
        opened = self._tell(Hello())
        return opened.sequence, opened.enrolled

    def begin(self) -> None:
        """Say that all nodes were asked what they charged."""
        self._tell(SettleCharges())

    def _tell(self, message: Message) -> Any:
        answer = frames.decode(self.vault.answer(frames.encode(message)), ANSWERS)
        assert not isinstance(answer, Failure)
        return answer

    def close(self) -> None:
        """Close the vault, as a process that is killed would."""
        self.vault.close()
