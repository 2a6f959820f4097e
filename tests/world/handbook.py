"""The procedures of docs/handbook.md: their steps, with what to type and what to see."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "handbook.md"
BLANKS: Final = {
    "ADDRESS": r"https://[\w.:-]+",
    "DIGEST": r"[0-9a-f]{64}",
    "FINGERPRINT": r"[0-9a-f]{64}",
    "HOLDER": r"[0-9a-f]{4}(?:-[0-9a-f]{4}){7}",
    "JOB": r"[0-9a-f]{64}",
    "N": r"\d+",
    "PROCESS": r"\d+",
    "TOKEN": r"[0-9a-f]{16}",
    "URL": r"https://[\w.:-]+",
}
"""Words in capitals that stand for what a step shows, each with its form."""
OR: Final = "\0"
_BLANK: Final = re.compile(rf"\b({'|'.join(BLANKS)})\b")


@dataclass(frozen=True)
class Step:
    """A step of a procedure: its `command`, "" if it has none, and all that it says."""

    command: str
    text: str

    @property
    def seen(self) -> list[str]:
        """Return what one sees where the command was typed."""
        return _quoted(self.text, r"You see (.*?)(?:\n\n|\Z)")

    @property
    def seen_before(self) -> list[str]:
        """Return what the terminal of `shoal up` shows before."""
        return _quoted(self.text, r"The terminal of `shoal up` shows (.*?)(?:\n\n|\Z)")

    @property
    def seen_then(self) -> list[str]:
        """Return what the terminal of `shoal up` shows afterwards."""
        return _quoted(self.text, r"The terminal of `shoal up` then shows (.*?)(?:\n\n|\Z)")

    def shows(self, blank: str) -> bool:
        """Tell whether one sees one of these."""
        seen = " ".join([*self.seen_before, *self.seen, *self.seen_then])
        return re.search(rf"\b{blank}\b", seen) is not None

    def typed(self, known: dict[str, str]) -> str:
        """Return the command with what earlier steps showed."""
        return _BLANK.sub(lambda blank: known[blank[0]], self.command)


def procedures() -> dict[str, list[Step]]:
    """Return the steps of each procedure by its heading."""
    _, *parts = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.MULTILINE)
    found = {}
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        steps = re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:]
        if steps:
            found[heading] = [_step(each) for each in steps]
    return found


def commands(heading: str, **known: object) -> list[list[str]]:
    """Return the `shoal` commands of a procedure in words, but `shoal up`, with what is known."""
    filled = {name: str(each) for name, each in known.items()}
    typed = [_BLANK.sub(lambda b: filled.get(b[0], b[0]), s.command) for s in procedures()[heading]]
    words = [shlex.split(each)[1:] for each in typed if each.startswith("shoal ")]
    return [each for each in words if each[0] != "up"]


def matches(pattern: str, said: str, known: dict[str, str]) -> dict[str, str] | None:
    """Return what is known after a pattern was seen in a text, None if it is not there.

    In a pattern … stands for any words, and a blank for what is known or else becomes known.
    """
    if OR in pattern:
        either = (matches(each, said, known) for each in pattern.split(OR))
        return next((each for each in either if each is not None), None)
    found = list[str]()

    def shape(blank: re.Match[str]) -> str:
        name = blank[0]
        if name in known:
            return re.escape(known[name])
        if name in found:
            return f"(?P={name})"
        found.append(name)
        return f"(?P<{name}>{BLANKS[name]})"

    parts = (re.escape(part) for part in pattern.split("…"))
    expression = _BLANK.sub(shape, r".*?".join(parts))
    last = [*re.finditer(expression, plain(said))][-1:]
    return known | last[0].groupdict() if last else None


def plain(said: str) -> str:
    """Return a text without the lines of tables, and with single spaces."""
    return " ".join(re.sub(r"[┃│┏┓┗┛┡┩└┘┳╇┴━─╈]", " ", said).split())


def _step(text: str) -> Step:
    code = "".join(re.findall(r"(?:^ {8}.*\n)+", text, re.MULTILINE))
    command = " ".join(code.replace("\\\n", " ").split("\n")).strip()
    return Step(re.sub(r" {2,}", " ", command), text)


def _quoted(text: str, sentence: str) -> list[str]:
    found = re.search(sentence.replace(" ", r"\s+"), text, re.DOTALL)
    if found is None:
        return []
    alternatives = re.sub(r"`\s+or\s+`", OR, found[1])
    return [" ".join(each.split()) for each in re.findall(r"`([^`]+)`", alternatives)]
