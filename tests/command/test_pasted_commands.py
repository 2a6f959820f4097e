"""Every command that is printed to be pasted reaches a shell's program as it was meant."""

import ast
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.command.running import shoal
from tests.world.consoles import HOSTILE_NAME

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"(shoal [a-z]+ [a-z]+|--[a-z-]+) $")


def words_of(line: str) -> list[str]:
    """Return the words that a program gets of a line that is pasted into a shell."""
    pasted = ["bash", "-c", f"printf '%s\\0' {line}"]
    said = subprocess.run(pasted, capture_output=True, check=True, timeout=30).stdout.decode()
    return said.split("\0")[:-1]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / HOSTILE_NAME


def test_what_quickstart_prints_can_be_pasted(home: Path) -> None:
    said = shoal("quickstart", home, "--no-dictionary").stdout
    commands = [words_of(line) for line in said.splitlines() if line.startswith("shoal ")]
    assert commands == [["shoal", "up", str(home)]]


def test_no_printed_command_is_put_together_without_quotes() -> None:
    found = []
    for folder in ("protocol", "services", "analysis", "command", "consortium", "demo"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                parts = node.values if isinstance(node, ast.JoinedStr) else []
                for before, after in pairwise(parts):
                    text = before.value if isinstance(before, ast.Constant) else ""
                    if COMMAND.search(str(text)) and isinstance(after, ast.FormattedValue):
                        found.append(str(path.relative_to(ROOT)))
    assert found == ["services/kit/shoal_kit/installed_models.py"]  # of an identifier
