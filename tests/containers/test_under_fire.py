"""Rounds go on while containers are killed, paused, cut off and out of disk.

Each test injects faults and sees what becomes of the jobs that it submitted meanwhile. The last one
accounts for every round of all of them. `hold_back` is what gives the tests their order: as long as
one hospital cannot reach the Compute nodes, a round stays open, and a fault meets it half full.

No verdict depends on how fast the machine is: what is waited for has many times the time it takes.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.containers.compose import Compose, docker, engine_answers
from tests.containers.fire import TOOLS, Fire
from tests.containers.ledger import ROW, lost_shares, read_outbox, read_rounds, reckon
from tests.containers.study import CLIENTS, HOSPITALS, NODES, Study
from tests.containers.waiting import until

FILES: Final = Path(__file__).parent / "files"
SERVICES: Final = (*NODES, "aggregator", "trainer", *HOSPITALS)
ALL: Final = len(HOSPITALS) * CLIENTS
ABANDONED: Final = "round 0 failed: "

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.skipif(not engine_answers(), reason="no Docker engine with Compose answers"),
]


@pytest.fixture(scope="module")
def compose(tag: str) -> Iterator[Compose]:
    docker(
        "build", "--quiet", "--tag", TOOLS, "--file", str(FILES / "tools.Dockerfile"), str(FILES)
    )
    compose = Compose(FILES / "override.yml", SHOAL_TAG=tag, SHOAL_TEST_FILES=str(FILES))
    try:
        compose.start(*SERVICES, "observer")
        yield compose
    finally:
        compose.down()


@pytest.fixture(scope="module")
def study(compose: Compose) -> Iterator[Study]:
    study = Study(compose)
    yield study
    study.close()


@pytest.fixture(scope="module")
def whole_fire(compose: Compose) -> Fire:
    return Fire(compose)


@pytest.fixture
def fire(whole_fire: Fire) -> Iterator[Fire]:
    """The faults, which end with the test at the latest."""
    yield whole_fire
    whole_fire.put_out()


def hold_back(fire: Fire) -> None:
    """Keep one hospital's answers from the Compute nodes, so that rounds stay open."""
    fire.cut_one_way("hospital-b", *NODES)


def half_full(study: Study, job: str) -> str:
    """Wait until a job's round has the other hospital's share everywhere; return the round."""
    round_id = study.round_of(job)
    study.await_held(round_id, dict.fromkeys(NODES, 1))
    return round_id


def hasty_job(study: Study) -> str:
    """Submit a job whose round is given up while the fault lasts."""
    return study.submit(round_seconds=15, grace_seconds=5)


def tolerant_job(study: Study) -> str:
    """Submit a job for which one hospital and any two nodes are enough when the time is up."""
    return study.submit(threshold=2, dropouts=CLIENTS, round_seconds=15, grace_seconds=15)


def cohort_size(study: Study, round_id: str) -> int:
    result = study.result(round_id)
    return 0 if result is None else result.cohort_size


def test_without_faults_jobs_of_one_round_and_of_two_are_finished(study: Study) -> None:
    jobs = [study.submit(), study.submit(method="ball_projection")]
    assert [study.await_end(job) for job in jobs] == ["finished", "finished"]


def test_a_node_that_is_killed_while_it_collects_comes_back_with_what_it_acknowledged(
    study: Study, fire: Fire
) -> None:
    hold_back(fire)
    job = study.submit()
    round_id = half_full(study, job)
    fire.crash("compute-0")
    study.await_held(round_id, {"compute-0": 1})
    fire.mend("hospital-b")
    assert study.await_end(job) == "finished"
    assert cohort_size(study, round_id) == ALL


def test_cuts_between_nodes_stop_no_round_while_any_way_is_left(study: Study, fire: Fire) -> None:
    fire.cut_one_way("compute-0", "compute-1")
    assert study.await_end(study.submit()) == "finished"
    fire.cut("compute-2", "compute-1")
    # compute-1 now hears of the others only in answers to its own questions to compute-0
    assert study.await_end(study.submit()) == "finished"


def test_a_round_that_needs_a_node_off_the_network_waits_for_it_until_it_gives_up(
    study: Study, fire: Fire
) -> None:
    hold_back(fire)
    jobs = study.submit(), hasty_job(study), tolerant_job(study)
    rounds = [half_full(study, job) for job in jobs]
    patient, hasty, independent = jobs
    fire.part("compute-2")
    fire.mend("hospital-b")
    assert study.await_end(hasty).startswith(ABANDONED)
    assert study.await_end(independent) == "finished"
    fire.rejoin("compute-2")
    assert study.await_end(patient) == "finished"
    assert [cohort_size(study, each) for each in rounds[:2]] == [ALL, 0]
    assert cohort_size(study, rounds[2]) >= CLIENTS


def test_a_paused_node_holds_up_its_own_rounds_only_and_goes_on_afterwards(
    study: Study, fire: Fire
) -> None:
    hold_back(fire)
    patient, hasty = study.submit(), hasty_job(study)
    for job in (patient, hasty):
        half_full(study, job)
    fire.pause("compute-1")
    late = study.submit()  # its announcement waits for the paused node
    fire.mend("hospital-b")
    assert study.await_end(hasty).startswith(ABANDONED)
    fire.resume("compute-1")
    assert [study.await_end(job) for job in (patient, late)] == ["finished", "finished"]


def test_a_node_with_a_full_disk_refuses_and_goes_on_once_there_is_room(
    study: Study, fire: Fire
) -> None:
    hold_back(fire)
    job = study.submit()
    round_id = half_full(study, job)
    fire.fill("compute-1")
    fire.mend("hospital-b")
    study.await_held(round_id, {"compute-0": 2, "compute-1": 1, "compute-2": 2})
    until(
        "hospital-b was told to come back later",
        lambda: "compute-1 answered 503" in fire.log("hospital-b"),
    )
    late = study.submit()
    refusal = study.announce("compute-1", late)
    assert refusal["type"] == "urn:shoal:problem:storage-unavailable"
    fire.stop("compute-1")
    fire.fill("compute-1")  # what it gave back when it stopped
    fire.start("compute-1")
    fire.refuses_to_start("compute-1", "is it full")
    fire.free("compute-1")
    assert [study.await_end(each) for each in (job, late)] == ["finished", "finished"]
    assert cohort_size(study, round_id) == ALL


def test_an_aggregator_with_a_full_disk_publishes_once_there_is_room(
    study: Study, fire: Fire
) -> None:
    hold_back(fire)
    job = study.submit()
    round_id = half_full(study, job)
    fire.fill("aggregator")
    fire.mend("hospital-b")
    until(
        "all nodes agreed",
        lambda: {study.at_node(node, round_id)["phase"] for node in NODES} == {"agreed"},
    )
    fire.free("aggregator")
    assert study.await_end(job) == "finished"


def test_trainer_aggregator_and_a_hospital_are_killed_together_and_go_on(
    study: Study, fire: Fire
) -> None:
    hold_back(fire)
    job = study.submit()
    round_id = half_full(study, job)
    killed = ("hospital-b", "trainer", "aggregator")
    for service in killed:
        fire.kill(service)
    for service in killed:
        fire.start(service)
    assert study.await_end(job) == "finished"
    assert cohort_size(study, round_id) == ALL


def test_a_hospital_that_one_node_does_not_hear_is_left_out_or_ends_the_round(
    study: Study, fire: Fire
) -> None:
    fire.cut_one_way("hospital-b", "compute-2")
    tolerant = study.submit(round_seconds=20, dropouts=CLIENTS)
    strict = study.submit(round_seconds=20)
    assert study.await_end(tolerant) == "finished"
    assert cohort_size(study, study.round_of(tolerant)) == CLIENTS
    assert "cohort_too_small" in study.await_end(strict)


def test_a_partial_sum_that_does_not_arrive_in_time_ends_the_round(
    study: Study, fire: Fire
) -> None:
    fire.cut_one_way("compute-1", "aggregator")
    job = hasty_job(study)
    assert study.await_end(job).startswith(ABANDONED)


def test_all_are_healthy_again(compose: Compose) -> None:
    until("all are healthy", lambda: compose.are_healthy(*SERVICES))


def test_logs_hold_no_key_and_nothing_about_a_single_client(
    compose: Compose, whole_fire: Fire
) -> None:
    keys = "cat $(find /party /data -name '*.key' -o -name owner.token)"
    for service in (*SERVICES, *(f"{hospital}-vault" for hospital in HOSPITALS)):
        secrets = [
            line
            for line in compose.execute(service, "sh", "-c", keys).splitlines()
            if not line.startswith("-----")
        ]
        log = whole_fire.log(service)
        assert secrets
        assert log or service.endswith("-vault")  # which tells its agent
        assert not any(secret in log for secret in secrets)
        said = {name for line in log.splitlines() if line[0] == "{" for name in json.loads(line)}
        assert not said & {"client", "key", "record", "seed", "share", "envelope", "exception"}


def test_every_round_is_accounted_for_and_no_acknowledged_share_is_lost(
    study: Study,
    whole_fire: Fire,
    compose: Compose,
    record_property: Callable[[str, object], None],
) -> None:
    rounds = read_rounds(study)
    faults = whole_fire.injected.copy()
    for hospital in HOSPITALS:
        whole_fire.stop(hospital)
        whole_fire.stop(f"{hospital}-vault")
    outboxes = [read_outbox(compose, hospital) for hospital in HOSPITALS]
    ledger = reckon(rounds, outboxes, lost=lost_shares(study, outboxes))
    record_property(ROW, ledger.row(faults))
    assert ledger.wrong == []
    assert (ledger.lost, ledger.double) == (0, 0)
    assert {each.spec.job for each in rounds} == set(study.jobs)


def test_all_stop_in_good_order(whole_fire: Fire) -> None:
    for service in (*NODES, "aggregator", "trainer"):
        whole_fire.stop(service)
