"""`shoal model`: two sides compare what they have installed, without running it."""

import json
from pathlib import Path

import pytest

from shoal_hosting.installed_models import digest_of
from tests.command.running import run
from tests.world.installed_models import install


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "shown", {"shown.py": "raise SystemExit('imported')\n"}, shown="shown:model")
    return tmp_path


def test_models_are_listed_with_their_digests(site: Path) -> None:
    found = run("model", "list")
    assert found.exit_code == 0
    assert "shown" in found.output and digest_of("shown") in found.output
    listed = run("model", "list", "--json")
    assert json.loads(listed.output)["shown"] == digest_of("shown")


def test_a_model_that_is_not_installed_is_a_mistake_with_what_to_do(site: Path) -> None:
    found = run("model", "digest", "absent")
    assert found.exit_code == 1
    assert "install its distribution" in found.output
