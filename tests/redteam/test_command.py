"""`shoal redteam`: what it prints, how it ends, and that it is there in a source tree only."""

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shoal_command
from shoal_redteam.command import app, as_value, expense, show_report
from shoal_redteam.findings import Finding, Verdict
from shoal_redteam.registry import all_attacks, chosen
from shoal_redteam.running import Report
from shoal_redteam.target import Target


def report_of(*verdicts: Verdict) -> Report:
    return Report({"replay": [Finding("again", each, "409", "a check") for each in verdicts]})


def test_the_list_names_every_attack_and_what_should_stop_it() -> None:
    listed = CliRunner().invoke(app, ["run", "nowhere", "--list", "--json"])

    assert listed.exit_code == 0
    attacks = json.loads(listed.stdout)
    assert [each["attack"] for each in attacks] == [each.name for each in all_attacks()]
    assert all(each[what] for each in attacks for what in ("liar", "tries", "stopped_by"))


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


def test_a_run_without_attacks_proves_nothing() -> None:
    assert Report().exit_status == 2


def test_the_json_holds_every_try(target: Target) -> None:
    value = as_value(chosen(["replay"]), report_of(Verdict.STOPPED))

    assert value["attacks"][0]["findings"][0]["verdict"] == "stopped"
    assert value["counts"] == {
        "stopped": 1,
        "not stopped: documented": 0,
        "got through": 0,
        "not carried out": 0,
    }


def test_one_attack_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    show_report(chosen(["replay"]), report_of(Verdict.STOPPED))
    assert "1 attack, 1 try: 1 stopped" in capsys.readouterr().out
    show_report(chosen(["replay"]), report_of(Verdict.STOPPED, Verdict.STOPPED))
    assert "1 attack, 2 tries: 2 stopped" in capsys.readouterr().out


async def test_it_says_whose_budget_it_spends(target: Target) -> None:
    said = expense(target)
    assert "budget of these 10 clients by their roster index: phone-01: 0; phone-02: 1; " in said
    assert said.endswith("phone-10: 9")


def test_a_directory_without_everybodys_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "consortium").mkdir()
    result = CliRunner().invoke(app, ["run", str(tmp_path)])

    assert result.exit_code != 0
    assert "is no test federation" in str(result.exception)


def test_an_attack_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no attack called 'nonsense'"):
        chosen(["nonsense"])


@pytest.mark.parametrize("installed", [True, False])
def test_the_command_has_it_only_where_the_package_is(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    names = [each.name for each in shoal_command.available()]
    assert ("redteam" in names) == installed
