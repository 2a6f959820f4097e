"""Jobs that would hold clients' budgets for ever, and ways out of jobs that others forge."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

from shoal_holder.state import State
from shoal_protocol.jobs.membership import LEFT, JobWithdrawal, Membership
from shoal_protocol.wire.documents import Role, Signed, sign
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, RefusedJob, WrongSigner
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.findings import CannotAttack, Finding, not_carried_out, refused, seen
from shoal_redteam.target import Target
from shoal_redteam.victim import victim
from shoal_studies.study_request import StudyRequest

_FOR_EVER: Final = datetime(9998, 12, 31, tzinfo=UTC)
_BEYOND_SECONDS: Final = 3600.0
_STEPS: Final = 2  # of a data holder, until it has joined what it joins


class FarDeadline(Attack):
    """A job that never begins, and for which whatever it may cost is set aside."""

    name = "far-deadline"
    liar = "an analyst, with the trainer"
    tries = "a job whose time to join is without an end; withdrawals and leaves by others"
    stopped_by = "refused-job by each one's own clock; wrong-signer, bad-signature"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Submit jobs to the trainer, show them to data holders, and forge ways out of one."""
        job = job_request(target, round_seconds=30, grace_seconds=20)
        most = target.consortium.manifest.policy.maximum_join_seconds
        for tried, deadline in {
            "a time to join until the year 9998": _FOR_EVER,
            "a time to join that is an hour too long": target.after(most + _BEYOND_SECONDS),
        }.items():
            body = job.body.model_copy(update={"join_deadline": deadline})
            far = target.sign(body, target.analyst)
            answers = {target.trainer: await target.send(target.trainer, "/v1/jobs", far.encode())}
            check = "the policy's maximum_join_seconds, from the reader's own now"
            yield refused(tried, answers, by={RefusedJob.code}, check=check)
            yield await self._shown(target, f"{tried}, shown to a data holder", far)
        if (await target.send(target.trainer, "/v1/jobs", job.encode())).is_refusal:
            raise CannotAttack("the trainer does not take an honest job")
        withdrawal = JobWithdrawal(
            manifest=job.body.manifest, job=job.digest, analyst=target.analyst
        )
        by_trainer = withdrawal.model_copy(update={"analyst": target.trainer})
        elsewhere = withdrawal.model_copy(update={"job": target.random_bytes(32).hex()})
        first = target.crew[0]
        second = target.crew[1]
        leave = Membership(
            manifest=job.body.manifest,
            job=job.digest,
            holder=target.holder(first),
            state=LEFT,
        )
        anothers = sign(leave, Role.HOLDER.value, target.keys.clients[second])
        forged: dict[str, tuple[str, bytes, str]] = {
            "a withdrawal by the trainer": (
                "withdrawal",
                target.sign(by_trainer, target.trainer).encode(),
                WrongSigner.code,
            ),
            "the withdrawal of another job": (
                "withdrawal",
                target.sign(elsewhere, target.analyst).encode(),
                MalformedDocument.code,
            ),
            "one data holder's leave by another": (
                "memberships",
                anothers.encode(),
                BadSignature.code,
            ),
        }
        for tried, (path, document, code) in forged.items():
            address = f"/v1/jobs/{job.digest}/{path}"
            answers = {target.trainer: await target.send(target.trainer, address, document)}
            yield refused(tried, answers, by={code}, check="whose job, and whose key, it is")

    async def _shown(self, target: Target, tried: str, job: Signed[StudyRequest]) -> Finding:
        async with victim(target, job) as prey:
            for _ in range(_STEPS):
                await prey.step()
            held = await prey.holder.vault.ask(State.reserved)
            if held or prey.network.joined:
                return seen(tried, stopped=False, answered="a data holder: joins", check="")
            if "maximum_join_seconds" not in prey.refusal:
                return not_carried_out(tried, f"a data holder: {prey.refusal or 'nothing'}")
            check = "the owner's and the consortium's maximum_join_seconds, and its own clock"
            return seen(tried, stopped=True, answered=f"it refuses: {prey.refusal}", check=check)
