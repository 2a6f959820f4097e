"""`shoal model`: two sides compare what they have installed, without running it."""

import json
from pathlib import Path

import pytest

from shoal_kit.installed_models import digest_of
from tests.command.running import run
from tests.world.installed_models import install


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "shown", {"shown.py": "raise SystemExit('imported')\n"}, shown="shown:model")
    return tmp_path


def test_a_model_is_shown_with_its_digest(site: Path) -> None:
    shown = run("model", "digest", "shown", "--json")
    assert json.loads(shown.output) == {"model": "shown", "digest": digest_of("shown")}


def test_a_model_that_is_not_installed_is_a_mistake_with_what_to_do(site: Path) -> None:
    found = run("model", "digest", "absent")
    assert found.exit_code == 1
    assert "install its distribution" in found.output
