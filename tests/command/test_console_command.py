"""Consoles as processes: whom it answers, how one signs in, and how it ends."""

import signal
from pathlib import Path

import pytest

from tests.world.consoles import console
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
