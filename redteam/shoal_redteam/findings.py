"""What came of a try, and how it is judged: by what was answered, never by silence alone.

A refusal counts only if it names the check that should have refused. One for another reason, such
as a budget that is spent, says nothing about that check: the try was not carried out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from shoal_kit.peers.exchange import Reply

THREAT_MODEL: Final = "docs/threat-model.md"


class CannotAttack(Exception):
    """An attack could not be carried out; the message says why."""


class Verdict(StrEnum):
    """How a try ended."""

    STOPPED = "stopped"
    DOCUMENTED = "not stopped: documented"
    GOT_THROUGH = "got through"
    NOT_CARRIED_OUT = "not carried out"


@dataclass(frozen=True)
class Finding:
    """One try: what was tried, what answered, what stopped it or says that nothing does."""

    tried: str
    verdict: Verdict
    answered: str
    stopped_by: str

    def provided(self, holds: bool, otherwise: str) -> "Finding":
        """Return this finding if what was seen afterwards bears it out; else it got through."""
        if holds or self.verdict in (Verdict.GOT_THROUGH, Verdict.NOT_CARRIED_OUT):
            return self
        return replace(self, verdict=Verdict.GOT_THROUGH, answered=otherwise, stopped_by="nothing")


def refused(
    tried: str, answers: Mapping[str, Reply], *, by: Collection[str], check: str
) -> Finding:
    """Judge a try by the answers of those to whom it was made, by name.

    It is stopped if all of them refuse with one of the problem codes in `by`; `check` says in
    words what these stand for.
    """
    return refused_codes(
        tried, {name: outcome_of(each) for name, each in answers.items()}, by, check
    )


def refused_codes(
    tried: str, outcomes: Mapping[str, str], by: Collection[str], check: str
) -> Finding:
    """Judge a try by a problem code from each of those to whom it was made, "" if one took it."""
    taken = [name for name, code in outcomes.items() if not code]
    if not outcomes:
        return Finding(tried, Verdict.NOT_CARRIED_OUT, "nobody was asked", "")
    if taken:
        said = f"taken by {_some(taken)}"
        return Finding(tried, Verdict.GOT_THROUGH, said, "nothing")
    said = _said(outcomes)
    if not set(outcomes.values()) <= set(by):
        wanted = f"says nothing of the check: due is {' or '.join(sorted(by))}"
        return Finding(tried, Verdict.NOT_CARRIED_OUT, said, wanted)
    return Finding(tried, Verdict.STOPPED, said, check)


def seen(tried: str, *, stopped: bool, answered: str, check: str) -> Finding:
    """Judge a try by what was seen: `check` is what stopped it, if it was stopped."""
    verdict = Verdict.STOPPED if stopped else Verdict.GOT_THROUGH
    return Finding(tried, verdict, answered, check if stopped else "nothing")


def documented(tried: str, *, answered: str, where: str) -> Finding:
    """Report a try that nothing stops, as the documentation says at `where`."""
    return Finding(tried, Verdict.DOCUMENTED, answered, where)


def not_carried_out(tried: str, why: str) -> Finding:
    """Report a try that says nothing, and why."""
    return Finding(tried, Verdict.NOT_CARRIED_OUT, why, "")


def outcome_of(answer: Reply) -> str:
    """Return the code of a refusal, "" if the answer is none."""
    return answer.code if answer.is_refusal else ""


def _said(outcomes: Mapping[str, str]) -> str:
    by_code: dict[str, list[str]] = {}
    for name, code in outcomes.items():
        by_code.setdefault(code, []).append(name)
    return "; ".join(f"{_some(names)}: {code}" for code, names in by_code.items())


def _some(names: Collection[str]) -> str:
    listed = list(names)
    first = ", ".join(listed[:4])
    return first if len(listed) <= 4 else f"{first} and {len(listed) - 4} more"
