"""Prints a job's progress, line by line, to the analyst who waits for it."""

from typing import Final

from rich.console import Console
from rich.text import Text

from shoal.jobs.job_states import JobState
from shoal.jobs.trainer_line import Notice
from shoal_protocol.certificates.study_request import StudyRequest

_LINES: Final = 10  # at most, of the rounds of one job


class Watch:
    """Prints a job's state, passed to `see`, when it has changed; without a console, nothing.

    Of many rounds a tenth each is one change.
    """

    def __init__(self, console: Console | None, job: str, request: StudyRequest) -> None:
        self._console = console
        self._request = request
        self._last: object = None
        told(console, f"Job {job}")

    def see(self, state: JobState) -> None:
        """Print a new state."""
        rounds = self._request.task.rounds
        tenth = (state.published + state.lost) // -(-rounds // _LINES)
        at = (state.phase, state.approvals, tenth)
        if at != self._last:
            deadline = self._request.join_deadline
            told(self._console, state.in_words(rounds=rounds, join_deadline=deadline))
        self._last = at


def told(console: Console | None, text: str) -> None:
    """Print a line of plain text, if there is a console."""
    if console is not None:
        visible = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
        console.print(Text(visible), soft_wrap=True)


def progress_console(is_shown: bool) -> Console | None:
    """Return the console for progress: standard error, or None."""
    return Console(stderr=True, highlight=False) if is_shown else None


def noticing(console: Console | None) -> Notice:
    """Return a notice that is printed as a warning, if there is a console."""
    return lambda text: told(console, f"Warning: {text}")
