"""Data holders in crowd jobs: what is contributed, what it costs, and what trainers can do."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any, NoReturn

import httpx
import numpy as np
import pytest

from shoal_agent.data_holder import DataHolder
from shoal_holder.crowds import memory
from shoal_holder.crowds.jobs import LAST_ANSWERS
from shoal_holder.crowds.status import CrowdStatus
from shoal_holder.policy import Policy
from shoal_holder.release_timing import GRID_SECONDS
from shoal_holder.vault import Vault
from shoal_kit.outcome import OVER
from shoal_protocol.crowds.draws import Submission
from shoal_protocol.crowds.tasks import design_rows, steps
from shoal_protocol.privacy.mechanisms import LaplacePart, NoisePart
from shoal_protocol.wire.encoding import Int64Vector
from tests.world.around_holder import COLUMNS, problem
from tests.world.around_holder_crowds import CROWD_POLICY, TASK, CrowdWorld
from tests.world.clock import NOW, HandMovedTimer
from tests.world.people import people, rows_at
from tests.world.spending import costs_of

WHOLE_TIME = 1000  # seconds until the job closes


@pytest.fixture
def world(tmp_path: Path) -> CrowdWorld:
    return CrowdWorld(tmp_path)


class Told:
    """A report that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, /, **facts: object) -> None:
        self.events.append((event, facts))

    def of(self, event: str) -> list[dict[str, object]]:
        return [facts for each, facts in self.events if each == event]


async def status(holder: DataHolder) -> CrowdStatus:
    [found] = (await holder.status()).crowds
    return found


def policy(**changes: Any) -> Policy:
    return Policy.model_validate(CROWD_POLICY.model_dump() | changes)


def contributors(world: CrowdWorld) -> Counter[int]:
    return Counter(each.body.client for each in world.crowds.taken.values())


def submissions(world: CrowdWorld) -> list[Submission]:
    return [each.body for each in world.crowds.taken.values()]


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["one", "feature", "all"])
@pytest.mark.parametrize("clipping", ["coordinate", "residual"])
async def test_what_leaves_is_the_drawn_weights_one_step_and_the_noise(
    tmp_path: Path, variant: str, clipping: str
) -> None:
    """In the variant "one" on one coordinate, and all others as they were drawn."""
    task = TASK.model_copy(update={"variant": variant, "clipping": clipping})
    world = CrowdWorld(tmp_path, task=task)
    drawn: list[int] = []

    def noise(part: NoisePart, count: int) -> Int64Vector:
        assert part == LaplacePart(scale=task.noise_scale, parties=1)
        drawn.extend(range(1000 + len(drawn), 1000 + len(drawn) + count))
        return np.array(drawn[-count:], np.int64)

    holder = world.holder(noise=noise)
    await world.run(holder, seconds=WHOLE_TIME)
    sent = submissions(world)
    assert len(sent) == (12 if variant != "feature" else 8)  # two of epsilon 1 are within the cap
    seen: list[int] = []
    for each in sent:
        weights = np.array(each.draw.body.weights)
        rows, targets = design_rows(task, rows_at(world.records, each.client, task.column_names))
        step = steps(task, weights, rows, targets)
        moved = np.array(each.weights) - weights
        noises = (moved - step)[moved != 0]
        assert len(noises) == task.touched
        seen += noises.tolist()
    assert set(seen) <= set(drawn) and len(set(seen)) == len(seen)  # each is used once
    await holder.close()


@pytest.mark.parametrize("whole", [0, 1, 3, 5])
async def test_a_client_contributes_as_often_whatever_its_records_each_time_with_all_that_count(
    tmp_path: Path, whole: int
) -> None:
    """Of five rows so many are whole, and four count."""
    task = TASK.model_copy(update={"records_per_client": 4, "variant": "all"})
    world = CrowdWorld(tmp_path, 1, contributions_per_client=3, task=task)
    values = np.array([[20.0, 90.0], [50.0, 150.0], [80.0, 120.0], [5.0, 80.0], [70.0, 70.0]])
    values[whole:, 1] = np.nan
    holder = world.holder(
        records=people(COLUMNS, values, [0, 5]),
        noise=lambda part, count: np.zeros(count, np.int64),
    )
    await world.run(holder, seconds=WHOLE_TIME)
    assert contributors(world) == {0: 3}
    await holder.close()
    some = [*combinations(range(whole), min(whole, 4))]
    for each in submissions(world):
        weights = np.array(each.draw.body.weights)
        allowed = [
            steps(task, weights, *design_rows(task, values[[*rows]])).tolist() if rows else [0, 0]
            for rows in some
        ]
        assert (np.array(each.weights) - weights).tolist() in allowed


async def test_nobody_spends_more_than_the_owner_allows(world: CrowdWorld) -> None:
    holder = world.holder(policy=policy(maximum_epsilon=1.2))
    await world.run(holder, seconds=WHOLE_TIME)
    assert contributors(world) == {0: 2, 1: 2, 2: 2, 3: 2}
    assert {cost.epsilon for cost in (await holder.committed()).values()} == {1.0}
    await holder.close()


@pytest.mark.slow
async def test_clients_contribute_at_random_times_over_the_whole_job(tmp_path: Path) -> None:
    """No client at the first step, and some in every third of the time.

    A third of the time without any of 24 clients would be 1 chance in 5,000.
    """
    world = CrowdWorld(tmp_path, clients=24)
    holder = world.holder()
    await holder.step()
    assert contributors(world) == {}
    before = 0
    for _ in range(3):
        await world.run(holder, seconds=290)
        assert sum(contributors(world).values()) > before
        before = sum(contributors(world).values())
    await holder.close()


async def test_when_an_answer_leaves_depends_on_public_numbers_alone(world: CrowdWorld) -> None:
    """Noise that takes long to draw and noise that takes none are asked to wait alike."""
    moments = []
    for seconds in (0.0, GRID_SECONDS / 10):
        timer = HandMovedTimer()

        def noise(
            part: NoisePart, count: int, timer: HandMovedTimer = timer, s: float = seconds
        ) -> Any:
            timer.passed += s
            return np.ones(count, np.int64)

        holder = world.holder(f"holder {seconds}", timer=timer, noise=noise)
        world.crowds.taken.clear()
        for node in world.nodes:
            node.machine = None
        while not timer.moments:
            await world.run(holder, seconds=10)
        moments.append(timer.moments[0])
        await holder.close()
    assert moments[0] == moments[1]


async def test_a_price_is_on_file_before_the_first_byte_of_a_contribution_leaves(
    world: CrowdWorld, holder: DataHolder
) -> None:
    """The trainer takes no submissions for a time; they were charged all the same."""
    world.wire.scripts["trainer"] = lambda request: (
        problem(503, "storage-unavailable") if request.url.path.endswith("submissions") else None
    )
    await world.run(holder, seconds=500)
    charged = sum(map(len, (await costs_of(holder)).values()))
    assert charged > 0 and not world.crowds.taken
    await holder.close()
    del world.wire.scripts["trainer"]
    again = world.holder()
    world.clock.move(60)
    await again.step()
    assert len(world.crowds.taken) == charged
    assert sum(map(len, (await costs_of(again)).values())) == charged
    await again.close()


async def test_the_same_bytes_are_sent_again_whatever_was_lost(
    world: CrowdWorld, holder: DataHolder
) -> None:
    """The trainer takes each batch, and its first answer to each is lost."""
    bodies: list[bytes] = []

    def lose(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("submissions") and request.content not in bodies:
            bodies.append(request.content)
            world.crowds.answer(request)
            raise httpx.ReadError("lost", request=request)
        return None

    world.wire.scripts["trainer"] = lose
    await world.run(holder, seconds=WHOLE_TIME)
    assert contributors(world) == {0: 3, 1: 3, 2: 3, 3: 3}
    found = await status(holder)
    assert (found.contributions, found.clients) == ({"acknowledged": 12}, 4)
    assert found.epsilon == world.crowds.request.body.task.contribution_epsilon
    nonces = {json.loads(each)["body"]["draw"]["body"]["nonce"] for each in bodies}
    assert len(nonces) == len(bodies)  # one document for one draw, ever


async def test_a_draw_that_was_not_answered_is_asked_for_again_with_the_same_nonce(
    world: CrowdWorld, holder: DataHolder
) -> None:
    """Or a trainer could answer only those draws that give the instance that it likes."""
    asked: list[str] = []

    def refuse_some(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("draws"):
            asked.append(json.loads(request.content)["nonce"])
            if len(asked) % 3:
                return problem(503, "storage-unavailable")
        return None

    world.wire.scripts["trainer"] = refuse_some
    await world.run(holder, seconds=WHOLE_TIME)
    answered = {each.draw.body.nonce for each in submissions(world)}
    assert len(answered) > 3
    assert len(set(asked) - answered) <= 4  # at most the one that each client still asks for
    assert max(Counter(asked).values()) > 1


@pytest.mark.parametrize("seconds", [40, 60])
async def test_a_draw_that_comes_too_late_to_be_answered_costs_nothing_and_is_asked_for_again(
    world: CrowdWorld, seconds: int
) -> None:
    """On a line where each draw takes so long, and a session 60 seconds.

    Of draws that were asked for together, the first are late because the others were waited for.
    """
    timer, asked, answered_after = HandMovedTimer(), dict[str, float](), list[float]()

    def slow(request: httpx.Request) -> httpx.Response | None:
        body = json.loads(request.content or b"{}")
        if request.url.path.endswith("draws"):
            asked[body["nonce"]] = timer.passed
            drawn = world.crowds.answer(request)
            timer.passed += seconds
            return drawn
        if request.url.path.endswith("submissions"):
            nonce = body["body"]["draw"]["body"]["nonce"]
            answered_after.append(timer.passed - asked[nonce])
        return None

    world.wire.scripts["trainer"] = slow
    holder = world.holder(timer=timer)
    await holder.step()
    world.clock.move(WHOLE_TIME // 3)  # several clients are due at once
    await world.run(holder, seconds=WHOLE_TIME // 3)
    assert asked and all(each < 60 for each in answered_after)
    world.wire.scripts.clear()
    await world.run(holder, seconds=WHOLE_TIME // 3)
    assert contributors(world) == {0: 3, 1: 3, 2: 3, 3: 3}  # nothing was lost by it
    assert asked.keys() <= {each.draw.body.nonce for each in submissions(world)}
    assert sum(map(len, (await costs_of(holder)).values())) == 12
    await holder.close()


async def test_nothing_is_charged_once_the_job_is_over_however_long_the_steps_took(
    world: CrowdWorld,
) -> None:
    class Slow(HandMovedTimer):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if world.crowds.draws:
                world.clock.move(WHOLE_TIME)

    holder = world.holder(timer=Slow())
    await world.run(holder, seconds=WHOLE_TIME)
    assert world.crowds.draws and not world.crowds.taken and await costs_of(holder) == {}
    await holder.close()


@pytest.mark.parametrize("early", [True, False])
async def test_what_was_taken_counts_as_taken_though_its_answer_was_lost_and_the_job_closed_since(
    world: CrowdWorld, holder: DataHolder, early: bool
) -> None:
    await world.run(holder, seconds=300)
    lost: list[httpx.Request] = []

    def lose(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith("submissions"):
            return None
        world.crowds.answer(request)
        lost.append(request)
        return problem(503, "storage-unavailable")

    world.wire.scripts["trainer"] = lose
    while not lost:
        await world.run(holder, seconds=10)
    del world.wire.scripts["trainer"]
    if early:
        world.crowds.close_early()
    else:
        world.clock.move(WHOLE_TIME)
        world.crowds.closed = True
    await world.run(holder, seconds=200)
    found = await status(holder)
    assert found.contributions == {"acknowledged": len(world.crowds.taken)}
    assert str(found.verdict).startswith("borne out")


async def test_a_job_that_answers_no_submission_by_itself_ends_here_at_its_time(
    world: CrowdWorld, holder: DataHolder
) -> None:
    def put_off(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith("submissions"):
            return None
        return httpx.Response(503)

    world.wire.scripts["trainer"] = put_off
    await world.run(holder, seconds=300)
    assert (await status(holder)).ended is None
    world.clock.move(WHOLE_TIME)  # and the trainer goes on to list the job as open
    await holder.step()
    assert (await status(holder)).ended is None
    world.clock.move(LAST_ANSWERS.total_seconds())
    await holder.step()
    assert (await status(holder)).ended == OVER


class Died(BaseException):
    """The process was killed."""


STEPS = ("draws", "charge", "submissions", "settlement")


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("where", STEPS)
async def test_wherever_a_data_holder_is_killed_no_draw_is_tried_by_a_second_nonce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, after: bool
) -> None:
    """Every other time that it comes there, before the step is done or after it was.

    It has one client, and so at most one draw is asked for and not on file.
    """
    world = CrowdWorld(tmp_path, 1, contributions_per_client=10)
    wide = {"maximum_local_epsilon": 10.0, "maximum_epsilon": 40.0}
    policy = CROWD_POLICY.model_copy(update=wide)
    asked: list[str] = []
    times = iter(range(10**6))

    def deadly(step: Callable[..., Any]) -> Callable[..., Any]:
        def taken(*arguments: Any, **named: Any) -> Any:
            dies = next(times) % 2 == 0
            if dies and not after:
                raise Died
            result = step(*arguments, **named)
            if dies:
                raise Died
            return result

        return taken

    def answer(request: httpx.Request) -> httpx.Response | None:
        path = request.url.path
        if path.endswith("draws"):
            asked.append(json.loads(request.content)["nonce"])
        return deadly(world.crowds.answer)(request) if path.endswith(where) else None

    world.wire.scripts["trainer"] = answer
    for module, name, step in (
        (memory, "charge", "charge"),
        (memory, "settle", "settlement"),
    ):
        if where == step:
            monkeypatch.setattr(module, name, deadly(getattr(module, name)))

    def killed(_: Vault, about: str, error: BaseException) -> NoReturn:
        raise error  # nothing in a process survives that it is killed

    monkeypatch.setattr(Vault, "_failed", killed)
    monkeypatch.setattr(Vault, "_without_failing", lambda vault, what, work: work())
    deaths = 0
    while world.clock() < world.crowds.closes_at:
        holder = world.holder(policy=policy)
        with contextlib.suppress(Died):
            await world.run(holder, seconds=1000)
            deaths -= 1
        deaths += 1
        await holder.close()
    assert deaths > 2
    answered = {each.draw.body.nonce for each in submissions(world)}
    assert 5 < len(answered) <= 10
    assert answered <= set(asked) and len(set(asked) - answered) <= 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"crowd_families": ("poisson",)}, "crowd_families"),
        ({"analysts": ("somebody",)}, "analyst"),
        ({"columns": ("age",)}, "column 'pressure'"),
        ({"maximum_local_epsilon": 0.4}, "crowd jobs may cost one client"),
        ({"maximum_epsilon": 0.4, "delta": 0.0, "mechanisms": ()}, "all jobs may cost one client"),
    ],
)
async def test_the_owners_policy_decides(
    world: CrowdWorld, changes: dict[str, Any], reason: str
) -> None:
    """And the reason is told once, however long the job is open."""
    told = Told()
    holder = world.holder(policy=policy(**changes), report=told)
    await world.run(holder, seconds=WHOLE_TIME)
    found = await holder.status()
    assert found.crowds == () and not world.crowds.taken and world.crowds.draws == 0
    assert reason in found.refused_crowds[world.job]
    [facts] = told.of("crowd job refused")
    assert facts["job"] == world.job and reason in str(facts["reason"])


async def test_a_policy_that_was_tightened_ends_a_job_that_goes_on(world: CrowdWorld) -> None:
    holder = world.holder()
    await world.run(holder, seconds=300)
    await holder.close()
    made = len(world.crowds.taken)
    strict = world.holder(policy=policy(crowd_families=()))
    await world.run(strict, seconds=WHOLE_TIME)
    assert len(world.crowds.taken) == made
    assert "crowd_families" in str((await status(strict)).ended)
    await strict.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"contributions_per_client": 900}, "exceeds"),
        ({"closes_at": NOW}, "passed"),
    ],
)
async def test_a_job_that_the_consortium_forbids_or_that_is_over_is_not_taken(
    world: CrowdWorld, holder: DataHolder, changes: dict[str, Any], reason: str
) -> None:
    world.crowds.open(world.crowd_request(**changes))
    await world.run(holder, seconds=100)
    assert reason in (await holder.status()).refused_crowds[world.job]
    assert world.crowds.draws == 0
