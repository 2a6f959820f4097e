"""The agent's HTTP routes for its owners: status, policy, ledger, evidence, backup, approvals.

Every route asks for the owner's token, since what it shows follows from records, ledger or rules.
Only approvals, which owners sign, and leaving a job change what is done.
"""

import math
from base64 import b64encode
from collections.abc import Collection
from functools import partial
from statistics import median_low
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from prometheus_client import CollectorRegistry

from shoal_agent.data_holder import DataHolder
from shoal_agent.status import (
    AgentPage,
    ApprovalsView,
    ChainPage,
    HolderStatus,
    JobView,
    Left,
    Spent,
)
from shoal_agent.vault_link import VaultGone
from shoal_holder.approvals import owners_missing, owners_needed
from shoal_holder.policy import Policy
from shoal_holder.state import State
from shoal_holder.vault import Vault
from shoal_kit.vitals import Vitals
from shoal_kit.web.application import create_application
from shoal_kit.web.openapi import (
    ANY,
    JSON,
    After,
    JobId,
    answers,
    only_with,
    signed,
)
from shoal_kit.web.problems import refusal
from shoal_protocol.jobs.membership import Approval
from shoal_protocol.privacy.accounting import NOTHING, Cap, Cost
from shoal_protocol.privacy.job_costs import epsilon_at, epsilon_left
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import LedgerBroken, NotReady

Count = Annotated[int, Query(ge=1, le=10_000)]
"""Query parameter: how many entries of a list at most."""
Askings = Annotated[int, Query(ge=1, le=100)]
"""Query parameter: how many requests at most; some are long."""


def create_agent_application(
    holder: DataHolder,
    *,
    token: str,
    registry: CollectorRegistry,
    vitals: Vitals | None,
    metrics_for_anybody: bool,
) -> FastAPI:
    """Return the agent's ASGI application; `token` opens the owner's routes and the metrics.

    With `metrics_for_anybody` the metrics tell what is left of the cap only if the rules declare
    the cap.
    """

    async def backup_due() -> float:
        return float((await holder.vault.ask(Vault.opened)).backup_due)

    async def unsent() -> float:
        rounds = [each for job in (await holder.status()).jobs for each in job.rounds]
        return sum(each.envelopes.get("pending", 0) for each in rounds if each.ended is None)

    async def refusing() -> float:
        return float((await holder.vault.ask(Vault.opened)).refusal is not None)

    async def epsilon_left_to_least(kind: str) -> float:
        policy = await holder.vault.ask(Vault.policy)
        told = policy.declared if metrics_for_anybody else policy
        if told is None or told.maximum_epsilon is None:
            return math.nan
        return float(getattr(_left((await holder.committed()).values(), policy.cap), kind))

    async def ready() -> None:
        await holder.chain(count=1)
        if (await holder.vault.ask(Vault.opened)).refusal is not None:
            raise LedgerBroken("nothing is joined or answered: the status and the log say why")

    app = create_application(
        "Shoal agent",
        ready=ready,
        registry=registry,
        vitals=vitals,
        metrics_token=None if metrics_for_anybody else token,
    )

    @app.exception_handler(VaultGone)
    async def show_that_the_vault_has_ended(_: Request, error: Exception) -> Response:
        del error
        return refusal(NotReady("the vault and its agent are ending"))

    if vitals is not None:
        vitals.watch("shoal_agent_backup_due", "1 where a backup is due", backup_due)
        vitals.watch("shoal_agent_refusing", "1 where nothing is answered: see the log", refusing)
        vitals.watch(
            "shoal_agent_envelopes_unsent", "Envelopes that no node has acknowledged yet", unsent
        )
        for kind in ("pure", "gaussian"):
            vitals.watch(
                f"shoal_agent_epsilon_left_{kind}",
                f"Epsilon left at the policy's delta, for {kind} jobs, to the client with least",
                partial(epsilon_left_to_least, kind),
            )

    owned = APIRouter(dependencies=[only_with(token)])

    @owned.get("/v1/status")
    async def show_status() -> HolderStatus:
        """The jobs that were joined, with counts of joins, answers and envelopes by outcome."""
        return await holder.status()

    @owned.get("/v1/policy")
    async def show_policy() -> Policy:
        """What this data holder allows."""
        return await holder.vault.ask(Vault.policy)

    @owned.get("/v1/ledger")
    async def show_ledger() -> AgentPage:
        """What clients spent in all and have left, and what open jobs reserve."""
        policy = await holder.vault.ask(Vault.policy)
        return AgentPage(
            spent=Spent(
                **_spending((await holder.vault.ask(Vault.spent)).values(), policy),
                left=_left((await holder.committed()).values(), policy.cap),
            ),
            reserved=await holder.vault.ask(State.reserved),
        )

    @owned.get("/v1/ledger/chain")
    async def show_chain(after: After = 0, count: Count = 1000) -> ChainPage:
        """The hash-chained entries of the journal from `after` on."""
        entries = await holder.chain(after=after, count=count)
        following = entries[-1].number if len(entries) == count else None
        return ChainPage(entries=entries, next=following)

    @owned.post("/v1/backup")
    async def back_up() -> dict[str, str]:
        """A backup of what a restore needs, sealed to the owner's recovery key, in base64."""
        return {"sealed": b64encode(await holder.backup()).decode()}

    @owned.get("/v1/approvals")
    async def show_approvals(
        after: After = 0, count: Askings = 100, job: JobId | None = None
    ) -> ApprovalsView:
        """The jobs that asked this data holder's owners, and what they decided; or only `job`.

        Those that may still be decided come first, then the newest; `next` is where to go on.
        `needed` owners of those listed approve a job; `left` is the epsilon that the client has who
        has least, before a job that is not joined yet.
        """
        policy = await holder.vault.ask(Vault.policy)
        found = await holder.approvals(after=after, count=count, job=job)
        return ApprovalsView(
            approval=policy.approval,
            needed=owners_needed(policy),
            owners=policy.owners,
            missing=owners_missing(policy),
            left=_left((await holder.committed()).values(), policy.cap),
            jobs=tuple(found),
            next=after + count if len(found) == count and job is None else None,
        )

    @owned.post(
        "/v1/approvals",
        **answers(ANY, takes=signed(Approval)),
    )
    async def decide(request: Request) -> Response:
        """Take an owner's signed decision about a job that asks; the data holder follows it."""
        await holder.decide(await request.body())
        return Response(canonical_json({}), media_type=JSON)

    @owned.get("/v1/jobs/{job}")
    async def show_job(job: JobId) -> JobView:
        """A job that was joined or is open, as its analyst signed it, and its parties."""
        return await holder.job(job)

    @owned.post("/v1/jobs/{job}/leave")
    async def leave(job: JobId) -> dict[str, str | int]:
        """Leave a job for good, with all clients here: no round of it is answered any more."""
        await holder.leave(job)
        [left] = [each for each in await holder.vault.ask(Vault.status) if each.job == job]
        answered = sum(each.answered_at is not None for each in left.rounds)
        return {"job": job, "slots": left.slots, "answered_rounds": answered}

    app.include_router(owned)
    return app


def _spending(spent: Collection[Cost], policy: Policy) -> dict[str, Any]:
    """Return how the clients' epsilon so far is distributed, by replacement of one client."""
    found = {each: epsilon_at(policy.delta, each) for each in set(spent)}
    epsilons = sorted(found[each] for each in spent) or [0.0]
    points = {"least": epsilons[0], "median": median_low(epsilons), "most": epsilons[-1]}
    return {
        "clients": len(spent),
        "delta": policy.delta,
        "epsilon": {
            name: epsilon if math.isfinite(epsilon) else None for name, epsilon in points.items()
        },
        "maximum_epsilon": policy.maximum_epsilon,
    }


def _left(committed: Collection[Cost], cap: Cap) -> Left:
    """Return what is left to the client that has least, for pure jobs and for Gaussian ones."""
    left = [epsilon_left(cap, cost) for cost in set(committed) or {NOTHING}]
    return Left(pure=min(pure for pure, _ in left), gaussian=min(gaussian for _, gaussian in left))
