"""Shows a job's progress to the analyst who waits for it.

On a terminal it draws bars. Elsewhere, and in notebooks, which keep a cell's output, it prints a
line when something begins or a tenth of many rounds is done.
"""

from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from shoal.jobs.job_states import JobState
from shoal.jobs.trainer_line import Notice
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.wire.phases import JobPhase

_LINES: Final = 10  # at most, of the rounds of one job


class Watch:
    """Shows the states of a job as they are passed to `see`; without a console, nothing."""

    def __init__(self, console: Console | None, job: str, request: StudyRequest) -> None:
        self._console = console
        self._job = job
        self._request = request
        self._bars: _Bars | None = None
        self._last = ""

    def __enter__(self) -> Self:
        if self._console is not None and self._console.is_terminal:
            self._bars = _Bars(self._console, self._request)
        told(self._console, f"Job {self._job}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def see(self, state: JobState) -> None:
        """Show a new state."""
        if self._bars is not None:
            self._bars.see(state)
            return
        line = _line(state, self._request.task.rounds)
        if line != self._last:
            told(self._console, line)
        self._last = line


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


class _Bars:
    """Two bars: who joined, and the rounds that are done."""

    def __init__(self, console: Console, request: StudyRequest) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._joined = self._progress.add_task("clients joined", total=request.maximum_population)
        self._rounds = self._progress.add_task("rounds over", total=request.task.rounds)
        self._progress.start()

    def see(self, state: JobState) -> None:
        total = state.population_size  # known when joining has ended
        self._progress.update(self._joined, completed=state.joined, total=total)
        self._progress.update(self._rounds, completed=state.published + state.lost)
        if state.reason is not None:
            self._progress.update(self._rounds, description=f"rounds ({state.phase})")

    def stop(self) -> None:
        self._progress.stop()


def _line(state: JobState, rounds: int) -> str:
    if state.phase is JobPhase.JOINING:
        waits = state.approvals.in_words("until joining closes")
        return f"Clients are joining; {waits}" if waits else "Clients are joining"
    over = state.published + state.lost
    size = state.joined if state.population_size is None else state.population_size
    said = f"{state.phase.capitalize()}: {size:,} clients"
    step = -(-rounds // _LINES)
    if over < rounds:
        return f"{said}, {over // step * step:,} of {rounds:,} rounds over"
    return f"{said}, {state.rounds_in_words(rounds)}"
