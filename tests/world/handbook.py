"""The commands of docs/handbook.md, so that drills run what the page says."""

import re
import shlex
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "handbook.md"


def entries() -> dict[str, list[list[list[str]]]]:
    """Return, by heading, the blocks of an entry: each the `shoal` commands in it, in words."""
    _, *parts = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.MULTILINE)
    return {
        heading: [_commands(block) for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)]
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _commands(block: str) -> list[list[str]]:
    lines = re.sub(r"\\\n", " ", block).splitlines()
    return [shlex.split(each)[1:] for each in lines if each.strip().startswith("shoal ")]


def commands(heading: str, block: int = 0, **words: object) -> list[list[str]]:
    """Return the commands of an entry's block, with `words` in the place of capitals."""
    given = {name: str(each) for name, each in words.items()}
    return [[given.get(word, word) for word in each] for each in entries()[heading][block]]
