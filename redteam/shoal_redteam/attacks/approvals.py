"""A courier that wants a job joined which its data holder's owners did not approve."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, Final

from nacl.signing import SigningKey

from shoal_protocol.jobs.membership import WAITS, Approval, approval_of
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    ProtocolError,
    UnknownJob,
    UnknownSigner,
    WrongPhase,
    WrongSigner,
)
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.findings import CannotAttack, Finding, not_carried_out, seen
from shoal_redteam.forging import changed, forged
from shoal_redteam.target import Target
from shoal_redteam.victim import Victim, victim

_CHECK: Final = "the vault verifies each decision by the keys that the owners' policy lists"
_STEPS: Final = 2  # of a data holder, from a decision to its join


class ForgedApproval(Attack):
    """A courier hands the vault decisions that no owner made, or made about something else."""

    name = "forged-approval"
    liar = "a data holder's courier, with an analyst, the trainer and all services"
    tries = "approvals that are forged, changed, moved to another job, or one owner's for two"
    stopped_by = "the vault, which has the owners' keys by their policy: the job is not joined"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Hand over each lie, then what the owners do say: only then the job is joined."""
        alice, bob, courier = (SigningKey(target.random_bytes(32)) for _ in range(3))
        owners = {
            name: bytes(key.verify_key).hex() for name, key in (("alice", alice), ("bob", bob))
        }
        job = job_request(target, round_seconds=30, grace_seconds=20)
        other = job_request(target, round_seconds=30, grace_seconds=20)
        async with victim(target, job, owner={"approval": "two", "owners": owners}) as prey:
            honest = await _asked(prey, "alice")
            elsewhere = approval_of(
                other.body,
                holder=honest.holder,
                owner="alice",
                decision="approve",
                now=target.clock(),
            )
            moved = sign(elsewhere, "alice", alice).to_json()
            turned = sign(
                honest.model_copy(update={"decision": "refuse"}), "alice", alice
            ).to_json()
            lies: dict[str, tuple[Mapping[str, Any], type[ProtocolError]]] = {
                "an approval signed by the courier's key": (
                    forged("approval", changed(honest), "alice", courier),
                    BadSignature,
                ),
                "an approval of an owner who is not listed": (
                    forged("approval", changed(honest, owner="carol"), "carol", courier),
                    UnknownSigner,
                ),
                "an owner's approval in another owner's name": (
                    forged("approval", changed(honest, owner="bob"), "alice", alice),
                    WrongSigner,
                ),
                "an owner's approval of another job": (moved, UnknownJob),
                "an owner's approval of another job, with this job's id": (
                    {**moved, "body": {**moved["body"], "job": job.digest}},
                    BadSignature,
                ),
                "an owner's approval of another data holder's part": (
                    forged("approval", changed(honest, holder=honest.holder + 1), "alice", alice),
                    MalformedDocument,
                ),
                "an owner's approval under another manifest": (
                    forged("approval", changed(honest, manifest="0" * 64), "alice", alice),
                    MalformedDocument,
                ),
                "an owner's refusal, turned into an approval": (
                    {**turned, "body": {**turned["body"], "decision": "approve"}},
                    BadSignature,
                ),
            }
            for tried, (lie, due) in lies.items():
                yield await _try(prey, tried, canonical_json(dict(lie)), due)
            later = honest.model_copy(
                update={"decided_at": honest.decided_at + timedelta(seconds=1)}
            )
            for each in (honest, later):
                await prey.holder.decide(sign(each, "alice", alice).encode())
            yield await _joins(prey, "one owner's approval twice, where two must approve")
            if prey.network.joined:
                return
            of_bob = honest.model_copy(update={"owner": "bob"})
            await prey.holder.decide(sign(of_bob, "bob", bob).encode())
            await _steps(prey)
            if prey.network.joined != {job.digest}:
                raise CannotAttack("the data holder does not join what both of its owners approved")
        async with victim(target, other, owner={"approval": "one", "owners": owners}) as prey:
            honest = await _asked(prey, "alice")
            refusal = honest.model_copy(update={"decision": "refuse"})
            await prey.holder.decide(sign(refusal, "alice", alice).encode())
            approval = sign(honest, "alice", alice).encode()
            yield await _try(
                prey, "an older approval after its owner's refusal", approval, WrongPhase
            )


async def _asked(prey: Victim, owner: str) -> Approval:
    """Have the job ask the owners; return what one of them may say.

    Raises:
        CannotAttack: it asks nobody.
    """
    await _steps(prey)
    asking = await prey.holder.approvals()
    if prey.network.joined or [each.stage for each in asking] != [WAITS]:
        raise CannotAttack("the data holder asks no owner")
    [waiting] = asking
    if waiting.holder is None:
        raise CannotAttack("the data holder is not enrolled")
    return approval_of(
        prey.network.job.body,
        holder=waiting.holder,
        owner=owner,
        decision="approve",
        now=prey.target.clock(),
    )


async def _try(prey: Victim, tried: str, lie: bytes, due: type[ProtocolError]) -> Finding:
    try:
        await prey.holder.decide(lie)
    except due as error:
        await _steps(prey)
        answered = f"a data holder: {error.code}"
        return seen(tried, stopped=not prey.network.joined, answered=answered, check=_CHECK)
    except ProtocolError as error:
        return not_carried_out(tried, f"a data holder: {error.code}")
    return seen(tried, stopped=False, answered="a data holder: takes it", check="")


async def _joins(prey: Victim, tried: str) -> Finding:
    await _steps(prey)
    joined = bool(prey.network.joined)
    answered = f"a data holder: {'joins' if joined else 'waits'}"
    return seen(tried, stopped=not joined, answered=answered, check=_CHECK)


async def _steps(prey: Victim) -> None:
    for _ in range(_STEPS):
        await prey.step()
