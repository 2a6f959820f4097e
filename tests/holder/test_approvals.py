"""The vault asks the owners, and believes nobody else: not the courier, who shows what it likes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from shoal_holder import approvals
from shoal_holder.approvals import REFUSED_BY_OWNER, Approvals
from shoal_protocol.jobs.membership import Approval, Decision, Membership, approval_of
from shoal_protocol.wire.documents import Signed, decode, sign
from shoal_studies.study_request import StudyRequest
from tests.scenarios.test_lying_courier import CLIENTS, Courier, Taken
from tests.world.around_holder import POLICY, World
from tests.world.examples import signing_key

ALICE, BOB, EVE = map(signing_key, ("alice", "bob", "eve"))
OWNERS = {"alice": bytes(ALICE.verify_key).hex(), "bob": bytes(BOB.verify_key).hex()}
ONE = POLICY.model_copy(update={"approval": "one", "owners": OWNERS})
TWO = ONE.model_copy(update={"approval": "two"})

Job = Signed[StudyRequest]


@contextmanager
def opened(world: World, **changes: Any) -> Iterator[Courier]:
    """Open the data holder's vault; the same world again is the same after a crash."""
    courier = Courier(world, **changes)
    try:
        yield courier
    finally:
        courier.close()


def decision(
    job: Job, what: Decision = "approve", *, owner: str = "alice", **changes: Any
) -> Signed[Approval]:
    body = approval_of(job.body, holder=0, owner=owner, decision=what, now=job.body.join_deadline)
    return sign(body.model_copy(update=changes), owner, signing_key(owner))


def waits(courier: Courier, job: Job) -> bool:
    offered = courier.offer(job)
    assert offered.yes or not offered.why
    return not offered.yes


def decide(courier: Courier, signed: Signed[Approval]) -> Taken:
    return courier.take(signed.encode())


def test_a_job_waits_until_an_owner_approves_it_and_is_then_joined_like_any(world: World) -> None:
    job = world.submit()
    with opened(world, policy=ONE) as courier:
        assert waits(courier, job) and waits(courier, job)
        assert (courier.interests(), courier.asked()) == ([], (job.digest,))
        assert [each.what for each in courier.due()] == ["waits"]
        assert decide(courier, decision(job)).yes
        assert courier.asked() == ()
        assert not waits(courier, job)
        assert [(each.what, each.about) for each in courier.due()] == [("join", job.digest)]


def test_one_analyst_s_jobs_do_not_bury_the_owners(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvals, "MOST_WAITING", 2)
    first, second, third = (world.submit() for _ in range(3))
    with opened(world, policy=ONE) as courier:
        assert waits(courier, first) and waits(courier, second)
        assert "2 jobs of its analyst wait" in courier.offer(third).why
        assert waits(courier, first)  # it has asked already
        decide(courier, decision(first, "refuse"))
        assert waits(courier, third)


def pass_days(courier: Courier, days: float) -> None:
    courier.world.clock.move(timedelta(days=days).total_seconds())
    courier.interests()  # as every day


def asking(courier: Courier) -> list[str]:
    return sorted(each.job for each in courier.ask(Approvals.page, count=100))


def test_what_nobody_decided_in_time_is_forgotten_once_the_policy_keeps_it_no_longer(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, CLIENTS, retention_days=30)
    ignored, half, refused = (world.submit() for _ in range(3))
    with opened(world, policy=TWO) as courier:
        assert waits(courier, ignored) and waits(courier, half) and waits(courier, refused)
        decide(courier, decision(half))
        decide(courier, decision(refused, "refuse"))
        pass_days(courier, 30)
        first = world.submit()
        assert waits(courier, first)
        assert ignored.digest in asking(courier)
        world.clock.move(61)
        second = world.submit()
        assert waits(courier, second)
        stay = (half, refused, first, second)
        assert asking(courier) == sorted(each.digest for each in stay)


def test_two_persons_are_two_keys_and_not_one_of_them_twice(world: World) -> None:
    job = world.submit()
    with opened(world, policy=TWO) as courier:
        assert waits(courier, job)
        decide(courier, decision(job))
        decide(courier, decision(job, decided_at=world.clock()))
        assert waits(courier, job)
        decide(courier, decision(job, owner="bob"))
        assert not waits(courier, job)


def test_what_an_owner_decided_outlives_a_crash_before_anybody_acts_on_it(world: World) -> None:
    job = world.submit()
    with opened(world, policy=TWO) as courier:
        assert waits(courier, job)
    for owner in ("alice", "bob"):  # the courier asks nothing more, and dies
        with opened(world, policy=TWO) as courier:
            assert decide(courier, decision(job, owner=owner)).yes
    with opened(world, policy=TWO) as courier:
        assert not waits(courier, job)


def other_job(job: Job) -> Job:
    return replace(job, body=job.body.model_copy(update={"nonce": "ab" * 16}))


def by_another_key(signed: Signed[Approval], name: str, key: SigningKey) -> Signed[Approval]:
    return sign(signed.body.model_copy(update={"owner": name}), name, key)


FORGERIES: dict[str, tuple[str, Callable[[Job], Signed[Approval]]]] = {
    "a key that is not listed": (
        "unknown-signer",
        lambda job: by_another_key(decision(job), "eve", EVE),
    ),
    "an owner's name, another key": (
        "bad-signature",
        lambda job: by_another_key(decision(job), "alice", EVE),
    ),
    "the data holder's own key": (
        "bad-signature",
        lambda job: by_another_key(decision(job), "alice", signing_key("holder")),
    ),
    "an owner who speaks for another": (
        "wrong-signer",
        lambda job: replace(decision(job), signer="bob"),
    ),
    "a refusal made an approval": (
        "bad-signature",
        lambda job: replace(decision(job, "refuse"), body=decision(job).body),
    ),
    "for another data holder": ("malformed-document", lambda job: decision(job, holder=1)),
    "under another manifest": ("malformed-document", lambda job: decision(job, manifest="f" * 64)),
    "about another job": ("unknown-job", lambda job: decision(other_job(job))),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_R12_no_decision_is_made_by_anybody_but_an_owner_about_this_job_here(
    world: World, forgery: str
) -> None:
    code, forge = FORGERIES[forgery]
    job = world.submit()
    with opened(world, policy=ONE) as courier:
        assert waits(courier, job)
        assert decide(courier, forge(job)) == Taken(False, code)
        assert waits(courier, job)


def test_an_approval_is_worth_nothing_for_a_job_that_looks_the_same(world: World) -> None:
    first, second = world.submit(), world.submit()
    with opened(world, policy=ONE) as courier:
        assert waits(courier, first) and waits(courier, second)
        decide(courier, decision(first))
        assert not waits(courier, first) and waits(courier, second)


def test_R5_a_refusal_of_one_owner_is_for_good(world: World) -> None:
    job = world.submit()
    with opened(world, policy=ONE) as courier:
        assert waits(courier, job)
        decide(courier, decision(job))  # she may think better of it until it is joined
        assert decide(courier, decision(job, "refuse")).yes
        assert decide(courier, decision(job)).why == "wrong-phase"
        assert decide(courier, decision(job, "refuse")).yes  # sent again
        decide(courier, decision(job, owner="bob"))
    with opened(world, policy=ONE) as courier:
        assert courier.offer(job).why == REFUSED_BY_OWNER


def test_the_vault_goes_by_its_own_clock_whenever_a_decision_was_made(world: World) -> None:
    job, in_time = world.submit(), timedelta(seconds=1)
    with opened(world, policy=TWO) as courier:
        assert waits(courier, job)
        decide(courier, decision(job))
        world.clock.move(60)
        late = decision(job, owner="bob", decided_at=job.body.join_deadline - in_time)
        assert decide(courier, late).why == "wrong-phase"
        assert "the time to join has passed" in courier.offer(job).why
        assert courier.asked() == ()


def test_an_approval_that_came_too_late_to_be_used_joins_nothing(world: World) -> None:
    job = world.submit()
    with opened(world, policy=ONE) as courier:
        assert waits(courier, job)
        decide(courier, decision(job))
        world.clock.move(60)  # the courier held the job back
        assert "the time to join has passed" in courier.offer(job).why


def test_an_owner_who_is_none_any_more_approves_nothing(world: World) -> None:
    job = world.submit()
    with opened(world, policy=TWO) as courier:
        assert waits(courier, job)
        for owner in ("alice", "bob"):
            decide(courier, decision(job, owner=owner))
    only_bob = TWO.model_copy(update={"owners": {"bob": OWNERS["bob"], "eve": "ab" * 32}})
    with opened(world, policy=only_bob) as courier:
        assert waits(courier, job)


def told(courier: Courier, job: Job) -> str | None:
    """Send what the trainer is to be told, as the courier does; return what that is."""
    for each in courier.due():
        if each.about == job.digest and each.what != "join":
            signed = decode(each.content, Membership)
            courier.world.consortium.verify(signed)
            courier.settle(each.what, each.about, "acknowledged")
            return signed.body.state
    return None


def test_the_trainer_is_told_once_that_a_job_waits_and_that_it_is_refused(world: World) -> None:
    job = world.submit()
    with opened(world, policy=ONE) as courier:
        assert waits(courier, job)
        assert (told(courier, job), told(courier, job)) == ("waits", None)
    with opened(world, policy=ONE) as courier:
        assert told(courier, job) is None
        decide(courier, decision(job, "refuse"))
        # the answer to an earlier word does not settle the later one
        courier.settle("waits", job.digest, "acknowledged")
        assert [each.what for each in courier.due()] == ["refused"]
        assert (told(courier, job), told(courier, job)) == ("refused", None)


def test_a_decision_is_no_other_document(world: World) -> None:
    job = world.submit()
    with opened(world, policy=ONE) as courier:
        assert waits(courier, job)
        for wrong in (b"", b"{}"):
            assert courier.take(wrong).why == "malformed-document"
        assert not courier.take(job.encode()).yes
        assert decide(courier, decision(job)).yes and not waits(courier, job)
