"""Task files: one shape for all tasks, with an example of each."""

import tomllib
from typing import get_args

import pytest

from shoal.jobs.task_files import example, parse_task_file
from shoal_protocol.queries import QueryName
from shoal_studies.registry import TaskName
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
    with pytest.raises(ValueError, match=rf"^\[settings\] {next(iter(wrong))}: should be a valid"):
        parse_task_file(content)


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        ("features", {"age": [100, 18]}, r"^\[features\] age: the lower bound .* below its upper"),
        (
            "features",
            {"age": ["a", 100]},
            r"^\[features\] age: bounds are two numbers, as \[18, 90",
        ),
        ("features", {"age": 5}, r"^\[features\] age: bounds are two numbers"),
        ("features", {"smoking": ["never", "ex", "now"]}, "a task file takes no levels: give them"),
        ("task", {"prior_sd": -1.0}, r"^\[task\] prior_sd: should be greater than"),
        ("task", {"method_number": 7}, r"^\[task\] method_number: .* method 1 and not by method 7"),
        ("task", {"name": "regresion"}, r"^\[task\] name: it names a study, one of .*regression"),
        ("settings", {"epsilon": "1"}, r"^\[settings\] epsilon: should be a valid number"),
    ],
)
def test_what_is_wrong_is_said_by_the_names_that_the_file_has(table, change, said):
    content = tomllib.loads(example("regression"))
    content[table] |= change
    with pytest.raises(ValueError, match=said):
        parse_task_file(content)


def test_a_file_without_settings_is_refused():
    content = tomllib.loads(example("regression"))
    del content["settings"]
    with pytest.raises(ValueError, match=r"^the table \[settings\] is missing"):
        parse_task_file(content)
