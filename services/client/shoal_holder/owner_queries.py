"""Answers its owner's questions from the state; all but leaving a job change nothing."""

from typing import Any, Final

from pydantic import TypeAdapter

from shoal_holder import exits, ledger, spending
from shoal_holder.approvals import Approvals, JobAsking
from shoal_holder.exits import Joined, ReservedBudget
from shoal_holder.jobs import Jobs
from shoal_holder.messages import Ask
from shoal_holder.policy import Policy
from shoal_holder.site import Site
from shoal_holder.spending import JobCharges, StatedCost, stated
from shoal_holder.state import State
from shoal_holder.status import JobStatus, kept, read_jobs
from shoal_protocol.privacy.ledger import LedgerEntry

TOLD: Final[dict[str, TypeAdapter[Any]]] = {
    "status": TypeAdapter(tuple[JobStatus, ...]),
    "kept": TypeAdapter(dict[str, int]),
    "policy": TypeAdapter(Policy),
    "approvals": TypeAdapter(list[JobAsking]),
    "spent": TypeAdapter(list[tuple[str, list[StatedCost]]]),  # of whom: a bitmap
    "committed": TypeAdapter(dict[int, StatedCost]),
    "ledger": TypeAdapter(list[ledger.ClientCharge]),
    "charges": TypeAdapter(list[JobCharges]),
    "chain": TypeAdapter(list[LedgerEntry]),
    "reserved": TypeAdapter(list[ReservedBudget]),
    "joined": TypeAdapter(Joined),
    "leave": TypeAdapter(Joined),
}
"""What each question is answered with."""


class OwnerQueries:
    """Answers the questions that the owner may ask."""

    def __init__(self, site: Site, state: State, jobs: Jobs, approvals: Approvals) -> None:
        self._site = site
        self._state = state
        self._jobs = jobs
        self._approvals = approvals

    def answer(self, asked: Ask) -> bytes:
        """Return the answer as JSON.

        Raises:
            UnknownJob, WrongPhase: as `exits.joined` and `Jobs.leave`.
        """
        return TOLD[asked.question].dump_json(self._found(asked))

    def _found(self, asked: Ask) -> Any:
        state = self._state
        match asked.question:
            case "status":
                return read_jobs(state.file)
            case "kept":
                return kept(state.file)
            case "policy":
                return self._site.policy
            case "approvals":
                return self._approvals.page(after=asked.after, count=asked.count, job=asked.job)
            case "spent":
                return spending.spent_alike(state.file)
            case "committed":
                sums = state.committed()
                return {client: stated(cost) for client, cost in sums.of(sums.charged).items()}
            case "ledger":
                return ledger.charges(state.file, after=asked.after, count=asked.count)
            case "charges":
                everything = state.committed()
                return spending.by_job(state.file, everything, asked.after, asked.count)
            case "chain":
                return ledger.entries(state.file, after=asked.after, count=asked.count)
            case "reserved":
                return exits.reserved(state.file)
            case "joined":
                return exits.joined(state.file, asked.job or "")
            case "leave":
                return self._jobs.leave(asked.job or "")
