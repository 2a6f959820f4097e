"""What an analyst learns of a job before it is submitted, over the whole federation."""

import tomllib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.jobs.job_check import EpsilonLeft, JobCheckReport, newest
from shoal.jobs.job_failures import JobRefused
from shoal.jobs.job_settings import JobSettings
from shoal.jobs.task_files import example, parse_task_file
from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.wire.documents import Role, Signed, from_json, sign
from shoal_studies.simulation import SimulatedFederation
from shoal_studies.study_request import JobsQuery
from tests.world.federation import GRACE_SECONDS, JOIN_SECONDS, PRIVACY, ROUND_SECONDS, Federation
from tests.world.people import people
from tests.world.trust import COLUMNS, HOLDER_POLICY, SITES, TASK, Trust


@pytest.fixture
async def varied(trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    """A federation whose first clinic refuses the query, and whose second lacks a column."""
    records = trust.records("clinic-b")
    ages = people(COLUMNS[:1], records.values[:, :1])
    holders: dict[str, dict[str, Any]] = {
        "clinic-a": {"policy": HOLDER_POLICY.model_copy(update={"queries": ("counts",)})},
        "clinic-b": {"records": ages},
    }
    async with Federation(trust, tmp_path, holders=holders) as running:
        await running.step()
        yield running


async def checked(federation: Federation, task: Any = TASK, **changes: Any) -> JobCheckReport:
    arguments: dict[str, Any] = {
        **PRIVACY.model_dump(),
        "minimum_population": 10,
        "maximum_population": sum(SITES.values()),
        "join_seconds": JOIN_SECONDS,
        "round_seconds": ROUND_SECONDS,
        "grace_seconds": GRACE_SECONDS,
    }
    settings = JobSettings(**arguments | changes)
    work = federation._analyst_life.spawn(federation.analyst.check(task, settings))
    await federation.until(lambda: _is_done(work))
    report: JobCheckReport = work.result()
    return report


async def _is_done(work: Any) -> bool:
    return bool(work.done())


async def declared(federation: Federation) -> dict[int, Signed[HolderDeclaration]]:
    who = federation.analyst.inner
    manifest = federation.analyst_book.current.digest
    query = who.signed(JobsQuery(manifest=manifest, analyst=who.name, at=federation.clock()))
    answer = await federation.ask(
        "trainer", "/v1/declarations/list", method="POST", content=query.encode()
    )
    shown = answer.json()
    assert shown["next"] is None
    signed = [from_json(each, HolderDeclaration) for each in shown["documents"]]
    return {each.body.holder: each for each in signed}


def holder_of(federation: Federation, site: str) -> int:
    key = federation.trust.key(site).verify_key
    found = federation.analyst_book.current.roster.holder_with(key)
    assert found is not None
    return found


async def test_a_job_that_is_found_to_run_runs_and_its_check_stored_and_spent_nothing(
    federation: Federation,
) -> None:
    await federation.step()
    report = await checked(federation)
    assert report.would_run
    assert report.answering == sum(SITES.values())
    assert (await federation.after(federation.analyst.jobs())).jobs == ()
    assert (await federation.ask("trainer", "/v1/ledger")).json()["entries"] == []
    await federation.learn()
    spent = await checked(federation)
    assert spent.left.gaussian < report.left.gaussian


async def test_it_says_which_data_holder_would_not_answer_and_why(varied: Federation) -> None:
    report = await checked(varied)
    reasons = {each.holder: each.reason for each in report.holders}
    assert reasons == {
        holder_of(
            varied, "clinic-a"
        ): "this data holder does not allow the query second_moment_matrix",
        holder_of(varied, "clinic-b"): "it declares no variable 'pressure'",
        holder_of(varied, "clinic-c"): None,
    }
    assert report.refusal is None
    assert not report.would_run
    assert report.answering == SITES["clinic-c"]
    assert "2 clients would answer, 10 are needed" in report.advice[0]


async def test_a_job_that_owners_rules_leave_too_few_clients_is_refused_at_once_with_reasons(
    varied: Federation,
) -> None:
    with pytest.raises(JobRefused) as refused:
        await varied.submit()
    for said in (
        "2 clients would answer, 10 are needed; refused by data holder",
        ": this data holder does not allow the query second_moment_matrix",
        "data holder 1: it declares no variable 'pressure'",
    ):
        assert said in str(refused.value)
    assert (await varied.after(varied.analyst.jobs())).jobs == ()


async def test_R5_declarations_that_are_forged_replayed_or_of_the_future_are_refused(
    federation: Federation,
) -> None:
    await federation.step()
    before = await declared(federation)
    holder = holder_of(federation, "clinic-a")
    old, now = before[holder], federation.clock()
    key = federation.trust.key("clinic-a")

    async def post(signed: Signed[HolderDeclaration]) -> tuple[int, str | None]:
        answer = await federation.ask(
            "trainer", "/v1/declarations", method="POST", content=signed.encode()
        )
        return answer.status_code, answer.json().get("type")

    later = old.body.model_copy(update={"declared_at": now + timedelta(seconds=1), "variables": ()})
    ahead = old.body.model_copy(update={"declared_at": now + timedelta(minutes=6)})
    forged = sign(later, Role.HOLDER, federation.trust.key("clinic-b"))
    assert await post(forged) == (403, "urn:shoal:problem:bad-signature")
    assert await post(sign(ahead, Role.HOLDER, key)) == (
        409,
        "urn:shoal:problem:outdated-declaration",
    )
    assert await declared(federation) == before
    assert (await post(old))[0] == 200
    assert (await post(sign(later, Role.HOLDER, key)))[0] == 201
    assert await post(old) == (409, "urn:shoal:problem:outdated-declaration")
    assert (await declared(federation))[holder].body == later


async def test_an_analyst_believes_no_trainer_who_changes_a_declaration(
    federation: Federation,
) -> None:
    await federation.step()
    signed = list((await declared(federation)).values())
    book = federation.analyst_book
    honest = newest([each.to_json() for each in signed], book)
    assert len(honest) == len(SITES)
    first, *others = signed
    changed = replace(first, body=first.body.model_copy(update={"variables": ("height",)}))
    assert newest([each.to_json() for each in (changed, *others)], book).keys() == {
        each.body.holder for each in others
    }


async def test_a_declaration_does_not_depend_on_the_records_nor_show_the_cap(
    trust: Trust, tmp_path: Path
) -> None:
    bodies = []
    for name, values in (("few", np.zeros((1, 2))), ("many", np.full((6, 2), 77.0))):
        given = {"records": people(COLUMNS, values)}
        (tmp_path / name).mkdir()
        async with Federation(trust, tmp_path / name, holders={"clinic-a": given}) as federation:
            await federation.step()
            bodies.append((await declared(federation))[holder_of(federation, "clinic-a")].body)
    assert bodies[0] == bodies[1]
    assert bodies[0].variables == COLUMNS
    assert bodies[0].rules.maximum_epsilon is None


@pytest.mark.slow
@pytest.mark.parametrize("clients", [600, 2000])
def test_the_error_to_expect_is_within_a_factor_of_two_of_jobs_on_realistic_records(
    clients: int,
) -> None:
    file = parse_task_file(tomllib.loads(example("regression")))
    settings = replace(
        file.settings, colluders=20, minimum_population=clients, maximum_population=clients
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    request = settings.request(
        file.task, manifest="0" * 64, nonce="0" * 32, analyst="analyst", now=now
    )
    report = JobCheckReport(request, None, EpsilonLeft(pure=1.0, gaussian=1.0), (), {}, ())
    told = {each.name: each for each in report.expected_errors()}
    generator = np.random.default_rng(5)
    age = np.clip(generator.normal(55.0, 12.0, clients), 18.0, 100.0)
    index = np.clip(generator.normal(26.0, 4.0, clients), 10.0, 60.0)
    pressure = 110.0 + 0.4 * age + 0.5 * index + generator.normal(0.0, 12.0, clients)
    records = {"age": age, "body_mass_index": index, "systolic_pressure": pressure}
    federation = SimulatedFederation(
        records, epsilon=1.0, delta=1e-6, dropouts=20, colluders=20, seed=1
    )
    posteriors = [federation.learn(file.task).posterior for _ in range(30)]
    reaches = np.array([np.diff(each.interval(0.95), axis=1)[:, 0] / 2.0 for each in posteriors])
    for name, median in zip(posteriors[0].names, np.median(reaches, axis=0), strict=True):
        assert 0.5 < median / told[name].reach < 2.0
        assert told[name].large_reach > told[name].reach


@pytest.mark.parametrize("name", ["bernoulli", "cohort_card", "kaplan_meier", "poisson"])
def test_a_job_whose_columns_are_coded_is_simulated_too(name: Any) -> None:
    file = parse_task_file(tomllib.loads(example(name)))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    request = file.settings.request(
        file.task, manifest="0" * 64, nonce="0" * 32, analyst="analyst", now=now
    )
    report = JobCheckReport(request, None, EpsilonLeft(pure=1.0, gaussian=1.0), (), {}, ())
    assert all(each.reach >= 0.0 for each in report.expected_errors())
