"""`shoal redteam`: what it prints, how it ends, and that it is there in a source tree only."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shoal_redteam.command import app
from shoal_redteam.findings import Finding, Verdict
from shoal_redteam.running import Report


def report_of(*verdicts: Verdict) -> Report:
    return Report({"replay": [Finding("again", each, "409", "a check") for each in verdicts]})


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ((Verdict.STOPPED, Verdict.DOCUMENTED), 0),
        ((Verdict.STOPPED, Verdict.NOT_CARRIED_OUT), 2),
        ((Verdict.NOT_CARRIED_OUT, Verdict.GOT_THROUGH), 1),
    ],
)
def test_the_exit_status_says_what_came_of_it(verdicts: tuple[Verdict, ...], status: int) -> None:
    assert report_of(*verdicts).exit_status == status


def test_a_directory_without_everybodys_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "consortium").mkdir()
    result = CliRunner().invoke(app, ["run", str(tmp_path)])

    assert result.exit_code != 0
    assert "is no test federation" in str(result.exception)
