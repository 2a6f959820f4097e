"""REST: the page that shows a whole job by curl alone."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import first_free_port
from tests.end_to_end.test_up import HOSPITALS, SHOAL, up

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rest.md"
SITES = ("hospital-a", "hospital-b")


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run the federation of the page; return the directory that holds it."""
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here: the package curl has it")
    directory = tmp_path_factory.mktemp("rest")
    home = directory / "my-federation"
    command = [*SHOAL, "quickstart", str(home), "--first-port", str(first_free_port())]
    command += ["--dictionary", str(HOSPITALS / "dictionary.toml")]
    command += [f"--clients={each}=400" for each in SITES]
    subprocess.run(command, check=True, capture_output=True)
    for each in SITES:
        shutil.copy(HOSPITALS / f"{each}.csv", home / "clients" / each / "records.csv")
        shutil.copy(HOSPITALS / "policy.toml", home / "clients" / each)
    with up(home) as terminal:
        terminal.wait_for("hospital-b runs at")
        yield directory


@pytest.fixture(scope="module")
def learned(beside: Path) -> Path:
    """Do literally what the page shows; return the directory with what it leaves."""
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = "set -euo pipefail\n" + "\n".join(blocks)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=beside,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "holds" in done.stdout
    return beside


@pytest.mark.essential
def test_the_page_learns_by_curl_alone(learned: Path) -> None:
    report = json.loads((learned / "report.json").read_bytes())["body"]
    assert report["job"] == json.loads((learned / "taken.json").read_bytes())["job"]
    assert report["cohort_sizes"] == [800]
