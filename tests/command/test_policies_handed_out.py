"""The policies that a beginner starts from allow what `shoal job example` asks for."""

import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from shoal.jobs.task_files import example, parse_task_file, read_crowd_file, read_task_file
from shoal_holder.crowds.jobs import crowd_refusal
from shoal_holder.policy import Policy
from shoal_kit.manifest_chain import open_chain
from shoal_protocol.jobs.job_request import PrivacyDemand
from shoal_protocol.privacy.accounting import Cost, compose
from shoal_protocol.queries import QueryName
from shoal_protocol.queries.columns import variables_of
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.trust.policy import Policy as ConsortiumPolicy
from shoal_studies.catalogue.linear_regression import (
    LinearRegressionTask,
    RegressionMethod,
)
from shoal_studies.registry import Task, TaskName
from shoal_studies.study_request import StudyRequest
from tests.command.running import shoal
from tests.world import examples
from tests.world.clock import NOW
from tests.world.crowd_examples import CROWD_JOB

HOSPITALS = Path(__file__).parents[2] / "examples" / "hospitals"
TASKS: dict[str, Task] = {
    name: parse_task_file(tomllib.loads(example(name))).task for name in get_args(TaskName)
}
PRIVACY = PrivacyDemand(epsilon=1.0, delta=1e-6, dropouts=20, colluders=10)


@pytest.fixture(scope="module")
def hospital() -> Policy:
    return Policy.from_toml(HOSPITALS / "policy.toml")


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> ConsortiumPolicy:
    made = tmp_path_factory.mktemp("quickstart") / "federation"
    shoal("quickstart", made)
    return open_chain(made / "consortium")[-1].manifest.policy


def request(task: Task, privacy: PrivacyDemand = PRIVACY, population: int = 600) -> StudyRequest:
    return examples.asking(
        task=task,
        privacy=privacy,
        minimum_population=population,
        maximum_population=population,
        sharing=ADDITIVE,
    )


def refusal(policy: Policy, task: Task) -> str | None:
    """Return why a policy for the task's columns refuses it, asked of all clients at once."""
    columns = variables_of(task.columns)
    whole = task.model_copy(update={"batch": None}) if task.batch else task
    return policy.model_copy(update={"columns": columns}).refusal(request(whole))


@pytest.mark.parametrize("name", [name for name in TASKS if name != "numpyro_model"])
def test_the_hospitals_policy_allows_each_tasks_example(hospital: Policy, name: str) -> None:
    assert refusal(hospital, TASKS[name]) is None


def test_the_hospitals_policy_allows_every_linear_regression(hospital: Policy) -> None:
    task = TASKS["linear_regression"]
    assert isinstance(task, LinearRegressionTask)
    for method in get_args(RegressionMethod):
        assert refusal(hospital, task.model_copy(update={"method": method})) is None


def test_the_hospitals_policy_allows_no_model_that_nobody_read(hospital: Policy) -> None:
    assert "models" in (refusal(hospital, TASKS["numpyro_model"]) or "")


def test_the_hospitals_policy_allows_their_own_job_as_it_is(hospital: Policy) -> None:
    file = read_task_file(HOSPITALS / "blood-pressure.toml")
    made: dict[str, Any] = {
        "manifest": "0" * 64,
        "nonce": "0" * 32,
        "analyst": "analyst",
        "now": NOW,
    }
    assert hospital.refusal(file.settings.request(file.task, **made)) is None


def test_the_hospitals_policy_allows_their_crowd_job_by_its_last_lines_alone(
    hospital: Policy, tmp_path: Path
) -> None:
    file = read_crowd_file(HOSPITALS / "blood-pressure-crowd.toml")
    job = CROWD_JOB.model_copy(update={"task": file.task})
    assert crowd_refusal(hospital, job) is not None
    *lines, epsilon, families = (HOSPITALS / "policy.toml").read_text().splitlines()
    changed = tmp_path / "policy.toml"
    changed.write_text("\n".join([*lines, epsilon.lstrip("# "), families.lstrip("# ")]))
    allowing = Policy.from_toml(changed)
    assert crowd_refusal(allowing, job) is None
    spent = Cost.pure(file.settings.contributions_per_client * file.task.contribution_epsilon)
    assert allowing.cap.allows(spent)
    assert not allowing.cap.allows(compose([spent, Cost.gaussian(0.05)]))  # as its comment says


def test_a_quickstarts_consortium_allows_every_query_of_every_task(
    quickstart: ConsortiumPolicy,
) -> None:
    assert set(quickstart.queries) == set(get_args(QueryName))
    for task in TASKS.values():
        assert set(task.query_names()) <= set(quickstart.queries)
