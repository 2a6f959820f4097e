"""A vault behind five verbs, whatever questions carry them: all that a courier can do, or lie.

`interests` are what the vault would have fetched, `take` puts in a document of which nothing is
believed, `due` is all that it has to send, `settle` says what became of it, and its owner may
`ask`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from shoal_agent.data_holder import DataHolder
from shoal_holder import frames
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.jobs import Jobs
from shoal_holder.messages import Answer, ChargesAsked, decoded, question_about
from shoal_holder.rounds import Rounds
from shoal_holder.vault import Vault
from tests.world.around_holder import vault_of

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
class Refused:
    """That the vault refuses, and the code why."""

    code: str


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
        agenda, questions = self._tell(Vault.agenda), dict[str, bytes]()
        for node in self._nodes:
            asked = self._tell(ChargeComparison.query, node=node)
            if isinstance(asked, ChargesAsked):
                questions[node] = asked.query
        return Interests(tuple(each.job for each in agenda.jobs), agenda.waiting, questions)

    def take(self, kind: Kind, *documents: bytes, about: str = "") -> Taken:
        """Put in a document; `about` is the job, or the node whose charges these are."""
        match kind:
            case "job":
                answer = self._tell(Jobs.offer, job=about, parts=documents)
            case "round":
                answer = self._tell(Rounds.offer, parts=documents)
            case "manifest":
                answer = self._tell(Vault.next_manifest, parts=documents)
            case "decision":
                answer = self._tell(Vault.decide, parts=documents)
            case "charges":
                answer = self._tell(ChargeComparison.hear, node=about, parts=documents)
            case "end":
                answer = self._tell(
                    Jobs.end_as_told, job=about, code="wrong-phase", parts=documents
                )
        if isinstance(answer, Refused):
            return Taken(False, answer.code)
        if kind == "charges":
            self._tell(Vault.settle_charges)
        return Taken(answer.taken, answer.reason or "") if kind in ("job", "round") else Taken(True)

    def due(self) -> list[Due]:
        """Have the vault make what it owes, and return all that it has to send."""
        agenda = self._tell(Vault.agenda)
        wanted: list[tuple[Any, str, int]] = [(what, job, 0) for what, job in agenda.letters]
        for each in agenda.rounds:
            if each.unprepared:
                self._tell(Rounds.prepare, round_id=each.round_id)
            wanted += [("envelope", each.round_id, node) for node in range(len(self._nodes))]
        return [due for each in wanted for due in self.waiting(*each)]

    def waiting(self, what: Any, about: str, node: int = 0) -> list[Due]:
        """Return what is to be sent about a job or round, if there is anything."""
        found = self._tell(Vault.pending, what=what, about=about, node=node)
        return [Due(what, about, node, each) for each in found]

    def settle(self, what: Any, about: str, outcome: str, *, node: int = 0) -> None:
        """Say what became of something that was to be sent; nobody can tell whether that is so."""
        self._tell(Vault.settle, what=what, about=about, outcome=outcome, node=node)

    def ask(self, verb: Callable[..., Any], **about: Any) -> Any:
        """Return the answer to its owner's question, or that it is `Refused`."""
        return self._tell(verb, **about)

    def version(self) -> tuple[int, int]:
        """Return the number of the manifest in force, and how many slots are enrolled under it."""
        opened = self._tell(Vault.opened)
        return opened.sequence, opened.enrolled

    def begin(self) -> None:
        """Say that all nodes were asked what they charged."""
        self._tell(Vault.settle_charges)

    def _tell(self, verb: Callable[..., Any], **arguments: Any) -> Any:
        question = frames.encode(question_about(verb)(**arguments))
        answer = frames.decode(self.vault.answer(question), {"Answer": Answer})
        assert not answer.failed
        return decoded(verb, answer.parts) if answer.refused is None else Refused(answer.refused)

    def close(self) -> None:
        """Close the vault, as a process that is killed would."""
        self.vault.close()
