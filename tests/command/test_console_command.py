"""Consoles as processes: whom it answers, how one signs in, and how it ends."""

import signal
from pathlib import Path

import pytest

from tests.command.running import run
from tests.world.consoles import console
from tests.world.tls_identities import make_identity
from tests.world.trust import make_trust

SIGN_IN = "/console/sign-in"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_trust(tmp_path_factory.mktemp("federation")).directory


def who(home: Path) -> list[str]:
    return ["--party", str(home / "parties/analyst"), "--consortium", str(home / "consortium")]


@pytest.mark.slow
def test_who_has_the_printed_token_signs_in_and_sees_why_there_is_nothing_to_see(
    home: Path,
) -> None:
    with console(*who(home)) as (browser, token, process):
        assert len(token) >= 32
        assert browser.get("/console").headers["location"] == SIGN_IN
        assert browser.post(SIGN_IN, data={"token": "guess"}).status_code == 403
        assert browser.post(SIGN_IN, data={"token": token}).headers["location"] == "/console"
        shown = browser.get("/console", timeout=30)
        assert shown.status_code == 502 and "The trainer does not answer" in shown.text
        assert browser.get(SIGN_IN, headers={"Host": "evil.example"}).status_code == 400
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.slow
def test_a_data_owner_signs_in_with_the_printed_token_and_sees_whom_to_start(
    tmp_path: Path,
) -> None:
    make_identity().write(tmp_path)
    (tmp_path / "owner.token").write_text("b" * 64)
    (tmp_path / "owner.token").chmod(0o600)
    assert run("agent", "owner-key", tmp_path / "owner.key").exit_code == 0
    at = ("--agent", tmp_path, "--data", tmp_path, "--url", "https://127.0.0.1:9")
    with console(*at, "--owner", tmp_path / "owner.key", command=("agent", "console")) as (
        browser,
        token,
        process,
    ):
        assert browser.get("/console").headers["location"] == SIGN_IN
        assert browser.post(SIGN_IN, data={"token": token}).headers["location"] == "/console"
        shown = browser.get("/console", timeout=30)
        assert shown.status_code == 502 and "shoal agent run" in shown.text
        assert "b" * 64 not in shown.text
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
