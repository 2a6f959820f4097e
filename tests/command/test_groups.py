"""Which commands there are, who may add some, and what a data holder's own commands load."""

import json
import subprocess
import sys

import pytest

from shoal_command import OF_DATA_HOLDERS

LOADED = """
import importlib, json, sys
for value in sys.argv[1:]:
    importlib.import_module(value.partition(":")[0])
print(json.dumps(sorted(sys.modules)))
"""

MAIN = """
import atexit, sys
atexit.register(lambda: print("loaded", *sorted(sys.modules)))
import shoal_command
shoal_command.main()
"""


def test_a_data_holders_commands_load_no_analysis_consortium_or_learning() -> None:
    asked = [sys.executable, "-c", LOADED, *OF_DATA_HOLDERS.values()]
    loaded = json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)
    assert "shoal_command.agent" in loaded
    of_others = {"shoal", "shoal_command_groups", "shoal_consortium", "shoal_studies"}
    assert {each.partition(".")[0] for each in loaded} & of_others == set()


@pytest.mark.parametrize(("name", "other"), [("party", "agent"), ("up", "party")])
def test_a_command_loads_no_other_group(name: str, other: str) -> None:
    asked = [sys.executable, "-c", MAIN, name, "--help"]
    said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    assert f" {name} [OPTIONS]" in said
    assert f"shoal_command.{other}" not in said.split("loaded")[-1].split()
