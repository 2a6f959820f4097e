"""The page for a data holder's auditor lists what a running agent loads, and nothing else."""

from collections import Counter

from bench import reading


def test_the_page_lists_each_module_that_an_agent_loads_once_and_no_other() -> None:
    listed = Counter(name for names in reading.parts().values() for name in names)
    assert [name for name, times in listed.items() if times > 1] == []
    assert set(listed) == reading.loaded_by(reading.AGENT)


def test_an_agent_loads_neither_the_analysts_side_nor_the_command() -> None:
    for name in reading.loaded_by(reading.AGENT):
        assert not name.startswith(
            ("shoal_client.command", "shoal_client.estimators", "shoal_client.planning")
        )
        assert not name.endswith(("analyst", "federation"))
