"""A data directory belongs to one process, for as long as that lives."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal_service.running import LOCK

PROGRAM = """
import sys
from pathlib import Path
from shoal_service.running import hold_data_directory
from shoal_kit.startup import startup_of

with startup_of("shoal-test"):
    hold_data_directory(Path(sys.argv[1]))
    print("holds it", flush=True)
    sys.stdin.read()
"""


@contextmanager
def started(directory: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_second_process_is_refused_until_the_first_was_killed(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with started(directory) as first:
        assert first_line(first) == "holds it\n"
        with started(directory) as second:
            output, errors = second.communicate()
        assert (second.returncode, output) == (78, "")
        assert errors == (
            f"shoal-test: will not start: another process uses the data directory {directory}; "
            "stop it, or name another directory\n"
        )
        with started(tmp_path / "other") as elsewhere:
            assert first_line(elsewhere) == "holds it\n"
    assert (directory / LOCK).exists()  # killed: it had no time to tidy up
    with started(directory) as third:
        assert first_line(third) == "holds it\n"


def test_what_a_service_writes_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with started(tmp_path / "data") as process:
            assert first_line(process) == "holds it\n"
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "data", tmp_path / "data" / LOCK)]
    assert modes == [0o700, 0o600]
