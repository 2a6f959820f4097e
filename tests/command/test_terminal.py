"""What the command shows: no peer can steer the terminal with it, and errors are single lines."""

import io
from datetime import UTC, datetime, timedelta

import pytest
import typer
from rich.console import Console, RenderableType

from shoal.jobs.job_failures import JobFailed, JobRefused
from shoal_command.rendering import plain, rendered
from shoal_command.terminal import one_line_for_errors
from shoal_command_groups.job_views import progress
from shoal_kit.peers.exchange import Unavailable
from shoal_kit.peers.service_calls import Refused
from shoal_kit.startup import StartupRefused
from shoal_protocol.jobs.job_state import JobState
from shoal_protocol.wire.errors import BadSignature, ProtocolError

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def printed_by(renderable: RenderableType, *, width: int = 120) -> str:
    file = io.StringIO()
    Console(width=width, file=file).print(renderable)
    return file.getvalue()


def state(**changes: object) -> JobState:
    said: dict[str, object] = {"job": "ab" * 32, "phase": "running", "joined": 1200} | changes
    return JobState.model_validate(said)


def shown(**changes: object) -> str:
    found = progress(
        state(**changes), rounds=2, join_deadline=NOW + timedelta(hours=2, minutes=3), now=NOW
    )
    return printed_by(rendered(found), width=200)


def a_round(phase: str, seconds: float) -> dict[str, object]:
    return {
        "round": "cd" * 32,
        "number": 1,
        "phase": phase,
        "deadline": NOW + timedelta(seconds=seconds),
    }


def test_nothing_that_a_peer_wrote_is_taken_for_a_command_to_the_terminal() -> None:
    hostile = "[bold]a[/bold] \x1b[2J\x07 b"
    failure = {"code": "spec_refused", "detail": "\x1b[31mred"}
    text = shown(
        phase="failed", reason=hostile, rounds=[a_round("abandoned", 1) | {"failure": failure}]
    )
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    assert "[31mred" in text  # as letters
    assert "\x1b[31mred" not in text
    assert "[bold]a[/bold]" in text
    assert plain("line\nline").plain == "line\nline"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("a bad argument"), 1),
        (FileNotFoundError(2, "No such file", "x"), 1),
        (FileExistsError("x exists already"), 1),
        (StartupRefused("a file is missing"), 1),
        (BadSignature(), 3),
        (JobRefused("refused-job: no"), 3),
        (Refused("404: no"), 3),
        (Unavailable("trainer: ConnectError"), 4),
        (ConnectionResetError(), 4),
        (JobFailed("too few clients"), 5),
    ],
)
def test_a_foreseen_error_is_one_line_with_its_own_status(error, status, capsys) -> None:
    def work() -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        one_line_for_errors(work)
    assert ended.value.exit_code == status
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line.startswith("Error: ")
    assert len(line) > len("Error: ")


def test_every_protocol_error_says_what_to_do(capsys) -> None:
    def work() -> None:
        raise ProtocolError("something was wrong")

    with pytest.raises(typer.Exit):
        one_line_for_errors(work)
    assert ProtocolError.remedy in capsys.readouterr().err
