"""Task files: one shape for all tasks, with an example of each."""

import tomllib
from typing import get_args

import pydantic
import pytest

from shoal.jobs.task_files import example, parse_task_file
from shoal_protocol.queries import QueryName
from shoal_studies.catalogue import TaskName
from shoal_studies.study_request import check_study
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


@pytest.mark.parametrize("wrong", [{"dropouts": "20"}, {"epsilon": True}])
def test_a_text_or_a_truth_value_is_no_number(wrong):
    content = tomllib.loads(example("linear_regression"))
    content["settings"] |= wrong
    with pytest.raises(pydantic.ValidationError, match=next(iter(wrong))):
        parse_task_file(content)
