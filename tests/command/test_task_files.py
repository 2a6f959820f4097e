"""Task files: one shape for all tasks, with an example of each."""

import dataclasses
import tomllib
from typing import get_args

import pydantic
import pytest

from shoal.jobs.task_files import example, parse_task_file
from shoal_protocol.certificates.study_request import check_study
from shoal_protocol.queries import QueryName
from shoal_protocol.sharing.additive import AdditiveSharing
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.sharing.threshold import ThresholdSharing
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


def test_a_task_that_does_not_exist_has_no_example():
    shoal("job", "example", "--task", "everything", status=2)


def test_a_regressions_file_may_name_an_offset_and_weights():
    content = tomllib.loads(example("regression"))
    content["task"]["family"] = "gamma"
    columns = {"target": {"days": [0, 90]}, "offset": {"log_years": [-2, 2]}}
    file = parse_task_file(content | columns | {"weights": {"share": [0, 1]}})
    assert [each.name for each in file.task.columns][-3:] == ["log_years", "days", "share"]
    assert parse_task_file(content | {"target": {"days": [0, 90]}}).task.offset is None


def test_a_file_may_name_how_many_nodes_share_an_answer_and_how_many_open_it():
    content = tomllib.loads(example("regression"))
    for table, expected in (
        ({"threshold": 2}, ThresholdSharing(threshold=2)),
        ({"committee": 3}, AdditiveSharing(committee=3)),
        ({"committee": 3, "threshold": 2}, ThresholdSharing(threshold=2, committee=3)),
    ):
        settings = parse_task_file(content | {"sharing": table}).settings
        assert settings.sharing == expected
        alike = dataclasses.replace(settings, sharing=ADDITIVE, committee=table.get("committee"))
        task = parse_task_file(content).task
        made = {"manifest": "0" * 64, "nonce": "0" * 32, "analyst": "analyst", "now": NOW}
        request = settings.request(task, **made)
        assert request.sharing == expected
        if "threshold" not in table:
            assert alike.request(task, **made) == request
    with pytest.raises(pydantic.ValidationError):
        parse_task_file(content | {"sharing": {"committee": 11}})


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
