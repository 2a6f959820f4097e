"""The systemd unit is one that systemd accepts, and its files name settings that parties read."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from pydantic import BaseModel

from shoal_agent.settings import Settings
from shoal_kit.settings import read_settings
from shoal_service.running import ServiceSettings

SYSTEMD: Final = Path(__file__).parents[1] / "examples" / "systemd"
ANALYZE: Final = shutil.which("systemd-analyze")


@pytest.mark.skipif(
    ANALYZE is None, reason="there is no systemd-analyze here: install Debian's package systemd"
)
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = (SYSTEMD / "shoal@.service").read_text()
    copy = tmp_path / "shoal@compute.service"
    copy.write_text(unit.replace("/opt/shoal/bin/python", sys.executable))
    assert ANALYZE is not None
    done = subprocess.run([ANALYZE, "verify", str(copy)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("file", "model"), [("compute", ServiceSettings), ("agent", Settings)])
def test_a_party_reads_its_environment(file: str, model: type[BaseModel]) -> None:
    lines = (SYSTEMD / f"{file}.env").read_text().splitlines()
    named = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    read = read_settings(model, named | {"SHOAL_DATA": f"/var/lib/shoal/{file}"})
    assert {f"SHOAL_{name.upper()}" for name in read.model_fields_set} == {*named, "SHOAL_DATA"}
