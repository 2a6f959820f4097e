"""The page for a data holder's auditor lists what a running vault loads, and nothing else."""

import ast
from collections import Counter

import pytest

from bench import reading

ONLY_WHERE_THE_POLICY_ALLOWS = (
    *("shoal_protocol.crowds", "shoal_holder.crowds."),
    "shoal_protocol.sharing.shamir",
    "shoal_kit.installed_models",
    "shoal_protocol.queries.models.numpyro_models",
)
NEVER = (
    *(
        "shoal.",
        "shoal_command",
        "shoal_consortium",
        "shoal_studies",
        "shoal_protocol.certificates",
    ),
)


def test_the_page_lists_each_module_that_a_vault_loads_once_and_no_other() -> None:
    listed = Counter(name for names in reading.parts().values() for name in names)
    assert [name for name, times in listed.items() if times > 1] == []
    assert set(listed) == reading.loaded_by(*reading.of_the_vault())


def test_an_agent_loads_no_model_of_records_nor_the_analysts_side_nor_the_command() -> None:
    loaded = reading.loaded_by(reading.AGENT)
    assert [name for name in loaded if name.startswith(NEVER)] == []


@pytest.mark.slow
def test_what_only_some_policies_allow_is_loaded_only_there_and_listed_apart() -> None:
    loaded = reading.loaded_by(*reading.of_the_vault())
    for gradients in ("shoal_holder.contribution", "shoal_kit.installed_models"):
        assert [name for name in reading.loaded_by(gradients) if name.startswith(NEVER)] == []
    assert [name for name in loaded if name.startswith(ONLY_WHERE_THE_POLICY_ALLOWS)] == []
    crowds, threshold, numpyro = reading.on_demand().values()
    assert set(crowds) <= reading.loaded_by("shoal_holder.crowds.jobs")
    assert set(threshold) <= reading.loaded_by("shoal_protocol.sharing.shamir")
    assert set(numpyro) <= reading.loaded_by("shoal_kit.installed_models")


def test_within_a_part_what_a_module_needs_comes_before_it() -> None:
    for names in reading.parts().values():
        for number, name in enumerate(names):
            tree = ast.parse(reading.file_of(name).read_text())
            needs = {
                module if module in names else each.module
                for each in ast.walk(tree)
                if isinstance(each, ast.ImportFrom)
                for module in (f"{each.module}.{one.name}" for one in each.names)
            }
            assert not needs & {*names[number + 1 :]}, name
