"""The data holder against a scripted consortium: it joins, answers once, retries and survives."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from pyroaring import BitMap

from shoal_agent import mail
from shoal_agent.data_holder import DataHolder
from shoal_consortium.parties import next_manifest
from shoal_holder import rounds
from shoal_holder.policy import Policy
from shoal_holder.status import RoundStatus
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.peers.peer import Peer
from shoal_protocol.privacy.accounting import compose
from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.queries import Column, SecondMomentMatrix, SecondMoments
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.roster_changes import with_enrolled, with_grown, with_revoked
from shoal_protocol.trust.succession import following_version
from shoal_protocol.wire.errors import UnknownSigner
from shoal_studies.catalogue.linear_regression import query_for, thresholds_for
from tests.world.around_holder import (
    COLUMNS,
    POLICY,
    PRIVACY,
    QUERY,
    TASK,
    World,
    charged_on,
    problem,
    records_for,
    state_of,
    vault_of,
)
from tests.world.examples import AUTHORITY, signing_key
from tests.world.people import people, rows_at
from tests.world.spending import costs_of

CLIENTS = 12
EVERYONE = range(CLIENTS)
MORE = Column(name="weight", centre=60.0, scale=60.0)
STEEP = QUERY.columns[1].model_copy(update={"scale": 1e-30})
TWO_ROUNDS = TASK.model_copy(update={"method": "ball_projection"})
FIRST = query_for(TWO_ROUNDS, 12, ())
THRESHOLDS = next(thresholds_for(TWO_ROUNDS))
SECOND = SecondMomentMatrix(
    columns=tuple(
        column.model_copy(update={"scale": spread * factor})
        for column, spread, factor in zip(
            FIRST.columns, (30.0, 35.0), (THRESHOLDS.features, THRESHOLDS.target), strict=True
        )
    ),
    intercept=FIRST.intercept,
    radius=THRESHOLDS.radius,
    grid_bits=FIRST.grid_bits,
    records_per_client=FIRST.records_per_client,
)


def policy(**changes: Any) -> Policy:
    return Policy.model_validate(POLICY.model_dump() | changes)


def encoded(world: World, places: Iterable[int] = EVERYONE) -> np.ndarray:
    return np.sum(
        [QUERY.encode(rows_at(world.records, place, COLUMNS)) for place in places], axis=0
    )


def encoded_in(world: World, holder: DataHolder, slots: range) -> np.ndarray:
    places = vault_of(holder)._site.positions()
    return encoded(world, [places[slot] for slot in slots])


async def only_round(holder: DataHolder) -> RoundStatus:
    [job] = (await holder.status()).jobs
    [only] = job.rounds
    return only


async def only_of(holder: DataHolder, job: str) -> RoundStatus:
    [found] = [each for each in (await holder.status()).jobs if each.job == job]
    [only] = found.rounds
    return only


async def steps(world: World, holder: DataHolder, count: int, seconds: float = 10.0) -> None:
    for _ in range(count):
        await holder.step()
        world.clock.move(seconds)


# Joining


async def test_a_job_is_decided_once_and_joined_with_the_same_bytes(
    world: World, holder: DataHolder
) -> None:
    request = world.submit()
    sent: list[bytes] = []

    def lose_answers(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/memberships"):
            sent.append(request.content)
            raise httpx.ReadTimeout("the answer was lost")
        return None

    world.wire.scripts["trainer"] = lose_answers
    await steps(world, holder, 3)
    del world.wire.scripts["trainer"]
    await holder.step()
    assert len(sent) > 1 and len(set(sent)) == 1
    assert world.trainer.joined[request.digest].keys() == {0}


async def test_a_long_step_ends_and_another_one_follows_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "STEP_SECONDS", 0.0)
    wake = asyncio.Event()
    holder = world.holder(wake=wake)
    await holder.step()
    assert {each.path for each in world.wire.log} == {"/v1/charges"} and wake.is_set()
    await holder.step()
    assert "/v1/jobs/joining" in {each.path for each in world.wire.log}
    await holder.close()


async def test_a_party_that_only_the_vault_knows_ends_no_step_and_has_newer_versions_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = world.holder()

    def unknown(*_: str) -> Peer:
        raise UnknownSigner

    with monkeypatch.context() as patched:
        patched.setattr(holder._directory, "party", unknown)
        await holder.step()
    assert {each.path.rpartition("/")[0] for each in world.wire.log} == {"/v1/manifests"}
    job = world.submit()
    await holder.step()
    assert set(world.trainer.joined) == {job.digest}
    await holder.close()


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"analysts": ()}, "the analyst is not among"),
        ({"columns": ("age",)}, "the column 'pressure'"),
        ({"minimum_population": 11}, "minimum_population"),
    ],
)
async def test_a_job_that_the_owners_rules_refuse_is_not_joined(
    world: World, rules: dict[str, Any], reason: str
) -> None:
    holder = world.holder(policy=policy(**rules))
    request = world.submit()
    await holder.step()
    assert reason in (await holder.status()).refused[request.digest]
    assert world.trainer.joined == {}
    await holder.close()


async def test_a_data_holder_that_grew_answers_for_its_further_slots_too(world: World) -> None:
    holder = world.holder(records=records_for(CLIENTS))
    stranger = (signing_key("stranger").verify_key, 5)
    roster = with_grown(with_enrolled(world.consortium.roster, [stranger]), 0, 3)
    newer = next_manifest(world.consortium, roster=roster, authority=AUTHORITY)
    world.consortium = following_version(world.consortium, newer.encode(), roster.encode())
    world.book.accept(newer.encode(), roster.encode())
    request = world.submit()
    await holder.step()
    slots = [*EVERYONE, CLIENTS + 5, CLIENTS + 6, CLIENTS + 7]
    assert (await holder.status()).jobs[0].slots == len(slots)
    await holder.close()
    more = world.holder(records=records_for(CLIENTS + 3))
    world.announce(request, population=BitMap(slots))
    await more.step()
    grown = records_for(CLIENTS + 3)
    every = [QUERY.encode(rows_at(grown, place, COLUMNS)) for place in range(CLIENTS + 3)]
    assert world.total().tolist() == np.sum(every, axis=0).tolist()
    await more.close()


async def test_the_budget_holds_over_jobs_that_run_at_the_same_time(world: World) -> None:
    holder = world.holder(policy=policy(maximum_epsilon=1.2))
    first, second = world.submit(), world.submit()
    await holder.step()
    assert first.digest in world.trainer.joined
    assert "none has budget left for epsilon 1 at" in (await holder.status()).refused[second.digest]
    await holder.close()


# Answering


async def test_the_noise_of_all_slots_is_drawn_at_once(world: World) -> None:
    asked: list[tuple[NoisePart, int]] = []

    def noise(part: NoisePart, count: int) -> np.ndarray:
        asked.append((part, count))
        return np.zeros(count, np.int64)

    holder = world.holder(noise=noise)
    request = world.submit()
    await holder.step()
    spec = world.announce(request).body
    await holder.step()
    blocks = spec.noise_blocks()
    assert asked == [(part.of(CLIENTS), coordinates) for coordinates, part in blocks]
    for (_, part), (drawn, _) in zip(blocks, asked, strict=True):
        assert drawn.variance(clients=1) >= part.variance(clients=CLIENTS) * (1 - 1e-15)
    await holder.close()


async def test_only_slots_of_the_population_are_answered_for(
    world: World, holder: DataHolder
) -> None:
    request = world.submit()
    await holder.step()
    world.announce(request, population=BitMap(range(2, CLIENTS)))
    await holder.step()
    assert np.array_equal(world.total(), encoded_in(world, holder, range(2, CLIENTS)))
    assert (await only_round(holder)).answers == CLIENTS - 2


async def test_a_slot_without_budget_contributes_zeros_and_noise_and_pays_nothing(
    world: World,
) -> None:
    """Nobody sees which slot that is: the answer covers it, with noise of its own."""
    asked: list[NoisePart] = []

    def noise(part: NoisePart, count: int) -> np.ndarray:
        asked.append(part)
        return np.zeros(count, np.int64)

    holder = world.holder(policy=policy(maximum_epsilon=1.2), noise=noise)
    first = world.submit()
    await holder.step()
    world.announce(first, population=BitMap(range(10)))
    await holder.step()
    world.trainer.ended.add(first.digest)
    await holder.step()
    world.nodes[0].held.clear(), world.nodes[1].held.clear(), world.nodes[2].held.clear()
    second = world.submit()
    await holder.step()
    assert (await holder.status()).jobs[1].slots == 2  # the only ones with so much left
    spec = world.announce(second).body
    await holder.step()
    assert np.array_equal(world.total(), encoded_in(world, holder, range(10, CLIENTS)))
    assert asked[-1] == spec.noise_blocks()[-1][1].of(CLIENTS)
    spent = {slot: compose(costs).mu for slot, costs in (await costs_of(holder)).items()}
    assert spent == pytest.approx(dict.fromkeys(EVERYONE, PRIVACY.cost.mu))
    assert (await only_of(holder, second.digest)).answers == CLIENTS
    await holder.close()


@pytest.mark.parametrize("changes", [{"scale": 1e-30}, {"scale": 0.02}, {"centre": 64.5}])
async def test_a_second_round_that_follows_from_no_spread_is_never_answered(
    world: World, holder: DataHolder, changes: dict[str, float]
) -> None:
    request = world.submit(task=TWO_ROUNDS)
    await holder.step()
    world.announce(request, 0, query=FIRST, mu=PRIVACY.cost.mu * 0.2**0.5)
    await holder.step()
    columns = (SECOND.columns[0].model_copy(update=changes), SECOND.columns[1])
    steep = SECOND.model_copy(update={"columns": columns})
    world.announce(request, 1, query=steep, mu=PRIVACY.cost.mu * 0.8**0.5)
    await holder.step()
    assert "refused" in str((await holder.status()).jobs[0].ended)
    assert len(charged_on(state_of(holder))) == CLIENTS  # the first round's


@pytest.mark.parametrize(
    "changes",
    [
        {"colluders": 1},
        {"dropouts": 1},
        {"mu": PRIVACY.cost.mu * 1.001},
        {"population": BitMap(range(CLIENTS - 3)), "dropouts": 1},
        {"query": SecondMoments.model_validate(QUERY.model_dump(exclude={"name"}))},
        {"query": QUERY.model_copy(update={"records_per_client": 2})},
        {"query": QUERY.model_copy(update={"columns": (*QUERY.columns, MORE)})},
        {"query": QUERY.model_copy(update={"columns": QUERY.columns[1:]})},
        {"query": QUERY.model_copy(update={"columns": QUERY.columns[::-1]})},
        {"query": QUERY.model_copy(update={"columns": (QUERY.columns[0], STEEP)})},
        {"query": QUERY.model_copy(update={"intercept": 0.5})},
        {"query": QUERY.model_copy(update={"grid_bits": 15})},
        {"query": QUERY.model_copy(update={"radius": 1.0})},
    ],
    ids=[
        "fewer colluders",
        "fewer dropouts",
        "dearer",
        "smaller population",
        "another query",
        "more records",
        "another column",
        "a column less",
        "columns in another order",
        "a column that is a threshold",
        "another intercept",
        "another grid",
        "another radius",
    ],
)
async def test_a_round_that_is_not_what_the_job_promised_ends_the_job(
    world: World, changes: dict[str, Any]
) -> None:
    columns = (*COLUMNS, MORE.name)
    values = np.column_stack([world.records.values, np.ones(CLIENTS)])
    world.records = people(columns, values)
    holder = world.holder(policy=policy(columns=columns))
    request = world.submit()
    await holder.step()
    world.announce(request, **changes)
    await holder.step()
    [job] = (await holder.status()).jobs
    assert job.ended is not None and job.ended.startswith("refused: ")
    world.announce(request, 1)
    await steps(world, holder, 2)
    assert all(node.held == {} for node in world.nodes)
    assert charged_on(state_of(holder)) == []
    await holder.close()


async def test_rounds_that_cost_more_than_the_job_together_are_refused(
    world: World, holder: DataHolder
) -> None:
    request = world.submit(task=TWO_ROUNDS)
    await holder.step()
    world.announce(request, 0, query=FIRST, mu=PRIVACY.cost.mu * 0.8)
    await holder.step()
    world.announce(request, 1, query=SECOND, mu=PRIVACY.cost.mu * 0.7)
    await holder.step()
    [job] = (await holder.status()).jobs
    assert "cost more" in str(job.ended)
    assert len(charged_on(state_of(holder))) == CLIENTS


async def test_a_cap_that_was_lowered_since_joining_is_kept(world: World) -> None:
    holder = world.holder(policy=policy(maximum_epsilon=2.0))
    first, second = world.submit(), world.submit()
    await holder.step()
    await holder.close()
    assert {first.digest, second.digest} == world.trainer.joined.keys()
    world.announce(first)
    holder = world.holder(policy=policy(maximum_epsilon=1.1))
    await holder.step()
    assert charged_on(state_of(holder)) == []
    world.clock.move(60)  # past the deadline
    await holder.step()
    ended = [each.ended for job in (await holder.status()).jobs for each in job.rounds]
    assert ended == [rounds.CAPPED], "that nobody answered is no delivery"
    await holder.close()


async def test_a_second_spec_for_the_same_round_is_never_answered(
    world: World, holder: DataHolder
) -> None:
    request = world.submit()
    await holder.step()
    world.announce(request, 0)
    await holder.step()
    before = [dict(node.held) for node in world.nodes]
    world.clock.move(1)
    world.announce(request, 0)
    await steps(world, holder, 3)
    assert [node.held for node in world.nodes] == before
    assert len(charged_on(state_of(holder))) == CLIENTS


# Sending


async def test_no_request_names_a_client_in_its_address(world: World, holder: DataHolder) -> None:
    request = world.submit()
    await holder.step()
    spec = world.announce(request)
    await holder.step()
    for sent in world.wire.log:
        path = sent.request.url.raw_path.decode()
        path = path.replace(request.digest, "").replace(spec.digest, "")
        assert path in {
            "/v1/charges?after=0",
            "/v1/jobs/joining",
            "/v1/jobs//request",
            "/v1/jobs//memberships",
            "/v1/jobs//rounds/0",
            "/v1/jobs//rounds/1",
            "/v1/rounds//shares",
        }


# Manifest versions


async def test_a_manifest_that_the_authority_did_not_sign_changes_nothing(
    world: World, holder: DataHolder
) -> None:
    roster = with_revoked(world.consortium.roster, [0])
    stolen = next_manifest(world.consortium, roster=roster, authority=AUTHORITY)
    forged = replace(stolen, signature="00" * 64)
    asked = []

    def relay(request: httpx.Request) -> httpx.Response | None:
        asked.append(request.url.path)
        forgery = request.url.path == "/v1/manifests/2"
        return httpx.Response(200, content=forged.encode()) if forgery else None

    world.wire.scripts["trainer"] = relay
    request = world.submit(manifest=stolen.digest)
    await holder.step()
    assert not any("rosters" in path for path in asked)  # its roster is not even asked for
    assert world.book.current.digest == world.consortium.digest
    assert request.digest in (await holder.status()).refused


@pytest.mark.parametrize(
    "wrong",
    [b"", lambda it: it[:-1], lambda it: it + b"x", lambda it: it[::-1]],
    ids=["empty", "short", "long", "turned"],
)
async def test_a_roster_that_is_not_the_manifest_s_changes_nothing(
    world: World, holder: DataHolder, wrong: Any
) -> None:
    roster = with_revoked(world.consortium.roster, [0])
    newer = next_manifest(world.consortium, roster=roster, authority=AUTHORITY)
    sent = wrong(roster.encode()) if callable(wrong) else wrong
    answers = {"/v1/manifests/2": newer.encode(), f"/v1/rosters/{roster.digest}": sent}
    world.wire.scripts["trainer"] = lambda request: (
        httpx.Response(200, content=answers[request.url.path])
        if request.url.path in answers
        else None
    )
    world.submit(manifest=newer.digest)
    await holder.step()
    assert world.book.current.digest == world.consortium.digest


@pytest.mark.parametrize(("seconds", "is_answered"), [(29, True), (31, False)])
async def test_a_round_of_the_version_before_is_answered_for_half_a_minute(
    world: World, holder: DataHolder, seconds: int, is_answered: bool
) -> None:
    request = world.submit()
    await holder.step()
    roster = world.consortium.roster
    newer = next_manifest(world.consortium, roster=roster, authority=AUTHORITY)
    world.book.accept(newer.encode(), roster.encode())
    await holder.step()
    world.clock.move(seconds)
    world.announce(request)
    await holder.step()
    assert all(bool(node.held) is is_answered for node in world.nodes)
    assert bool(await costs_of(holder)) is is_answered


async def test_a_round_under_a_version_that_is_no_longer_trusted_is_left_alone(
    world: World,
) -> None:
    holder = world.holder()
    request = world.submit()
    await holder.step()
    world.announce(request)
    world.wire.scripts["compute-1"] = lambda request: problem(503, "not-ready")
    await holder.step()
    await holder.close()
    roster = world.consortium.roster
    newer = next_manifest(world.consortium, roster=roster, authority=AUTHORITY)
    later = Consortium.pinned(newer.encode(), roster.encode(), digest=newer.digest)
    del world.wire.scripts["compute-1"]
    holder = world.holder(book=ManifestBook(later, world.directory / "others"))
    await steps(world, holder, 20)
    assert world.nodes[1].held == {}
    assert (await only_round(holder)).ended == "over"
    await holder.close()


# Arrangement


async def test_events_never_name_a_client(world: World) -> None:
    named: set[str] = set()
    holder = world.holder(report=lambda event, **facts: named.update(facts))
    request = world.submit()
    await holder.step()
    world.announce(request)
    world.wire.scripts["compute-1"] = lambda request: problem(503, "not-ready")
    await holder.step()
    assert named == {"job", "round", "node", "number", "reason", "slots", "outcome", "letter"}
    await holder.close()


async def test_a_round_whose_deadline_has_passed_is_missed_and_costs_nothing(
    world: World, holder: DataHolder
) -> None:
    request = world.submit(task=TWO_ROUNDS)
    await holder.step()
    world.announce(request, query=FIRST, mu=PRIVACY.cost.mu * 0.2**0.5)
    world.clock.move(60)
    await holder.step()
    assert (await only_round(holder)).ended == "missed"
    assert charged_on(state_of(holder)) == []
    # the job goes on, and so do we
    world.announce(request, 1, query=SECOND, mu=PRIVACY.cost.mu * 0.8**0.5)
    await holder.step()
    sums = [SECOND.encode(rows_at(world.records, client, COLUMNS)) for client in EVERYONE]
    assert np.array_equal(world.total(), np.sum(sums, axis=0))
