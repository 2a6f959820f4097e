"""Task files: one shape for all tasks, with an example of each."""

import tomllib
from typing import get_args

import pydantic
import pytest

from shoal.jobs.task_files import example, parse_task_file
from shoal_protocol.certificates.study_request import check_study
from shoal_protocol.queries import QueryName
from shoal_protocol.studies import TaskName
from tests.command.running import shoal
from tests.world.clock import NOW
from tests.world.examples import POLICY, manifest


@pytest.mark.parametrize("name", get_args(TaskName))
def test_the_command_prints_an_example_of_every_task_that_passes_as_it_is(name):
    shown = shoal("job", "example", "--task", name)
    file = parse_task_file(tomllib.loads(shown.stdout))
    assert file.task.name == name
    assert file.settings.minimum_population == 500
    assert shown.stdout.splitlines()[0].endswith(", ".join(file.task.query_names()))
    made = {"manifest": "0" * 64, "nonce": "0" * 32, "analyst": "analyst", "now": NOW}
    policy = POLICY.model_copy(update={"queries": get_args(QueryName)})
    check_study(file.settings.request(file.task, **made), manifest(policy=policy))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("linear_regression", {"target": {"a": [0, 1], "b": [0, 1]}}),
        ("linear_regression", {"features": {}}),
        ("linear_regression", {"offset": {"a": [0, 1]}}),
        ("regression", {"offset": {"a": [0, 1]}}),  # a linear model has none
        ("regression", {"weights": {"a": [0, 1], "b": [0, 1]}}),
        ("linear_regression", {"columns": {"a": [0, 1]}}),
        ("normal", {"columns": {"a": [0, 1], "b": [0, 1]}}),
        ("multivariate_normal", {"columns": {"a": [0, 1]}}),
        ("bernoulli", {"columns": {"a": [0, 1]}}),
        ("poisson", {"task": {"name": "poisson", "column": "visits"}}),
        ("categorical", {"task": {"name": "unheard_of"}}),
    ],
)
def test_a_file_that_does_not_fit_its_task_is_refused(name, change):
    content = tomllib.loads(example(name)) | change
    with pytest.raises(pydantic.ValidationError):
        parse_task_file(content)
