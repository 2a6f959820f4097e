"""A service runs over TLS, stops when told, and ends clearly when it cannot go on."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.world.loopback import pinned_client
from tests.world.tls_identities import make_identity

PROGRAM = """
import asyncio, resource, sys
from pathlib import Path
from prometheus_client import CollectorRegistry
from shoal_kit.web.application import create_application
from shoal_kit.web.logs import configure_logs
from shoal_kit.security import server_tls
from shoal_kit.startup import startup_of
from shoal_kit.web.serving import serve

port, certificate, key = sys.argv[1:4]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

async def ready(): ...

app = create_application("t", ready=ready, registry=CollectorRegistry())

@app.get("/slow")
async def slow():
    print("asked", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return "answered"

@app.get("/stuck")
async def stuck():
    print("asked", flush=True)
    await asyncio.Event().wait()

async def work():
    print("working", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("tidied up", flush=True)

configure_logs()
with startup_of("shoal-test"):
    tls = server_tls(Path(certificate), Path(key), Path(certificate).read_text())
    patience = float(sys.argv[4])
    serve(app, host="127.0.0.1", port=int(port), tls=tls, work=work, stop_within_seconds=patience)
"""


@contextmanager
def started(directory: Path, patience: float) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the program above, which waits so many seconds; yield its process and certificate."""
    identity = make_identity()
    files = [str(path) for path in identity.write(directory)]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "0", *files, str(patience)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process, identity.pem
    finally:
        process.kill()
        process.communicate()


def port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    assert process.stderr is not None
    port: int = json.loads(process.stderr.readline())["port"]
    assert process.stdout.readline() == "working\n"
    return port


async def ask(
    client: httpx.AsyncClient, path: str, process: subprocess.Popen[str]
) -> asyncio.Task[httpx.Response]:
    """Send a request, and return its task once the process has begun to answer it."""
    assert process.stdout is not None
    asking = asyncio.create_task(client.get(path))
    line = asyncio.create_task(asyncio.to_thread(process.stdout.readline))
    done, _ = await asyncio.wait({asking, line}, return_when=asyncio.FIRST_COMPLETED)
    if asking in done:  # refused, so the line will never come
        process.kill()
        await line
        raise AssertionError("not asked") from asking.exception()
    assert line.result() == "asked\n"
    return asking


async def until_nobody_listens(port: int) -> None:
    with suppress(ConnectionError):
        while True:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_stop_it_answers_what_was_asked_tidies_up_and_succeeds(
    tmp_path: Path, number: signal.Signals
) -> None:
    with started(tmp_path, 60.0) as (process, certificate):
        port = port_of(process)
        async with pinned_client(certificate, base_url=f"https://127.0.0.1:{port}") as client:
            asking = await ask(client, "/slow", process)
            process.send_signal(number)
            await until_nobody_listens(port)
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            answer = await asking
        output, errors = await asyncio.to_thread(process.communicate)
    assert (answer.json(), output) == ("answered", "tidied up\n")
    assert (process.returncode, "Traceback" in errors) == (0, False)
    assert json.loads(errors.splitlines()[-1])["event"] == "stopped"


@pytest.mark.slow
async def test_a_request_that_never_ends_does_not_keep_it_from_stopping(tmp_path: Path) -> None:
    with started(tmp_path, 1.0) as (process, certificate):
        base_url = f"https://127.0.0.1:{port_of(process)}"
        async with pinned_client(certificate, base_url=base_url) as client:
            asking = await ask(client, "/stuck", process)
            process.terminate()
            output, _ = await asyncio.to_thread(process.communicate)
            [outcome] = await asyncio.gather(asking, return_exceptions=True)
    assert (process.returncode, output) == (0, "tidied up\n")
    assert not isinstance(outcome, httpx.Response) or outcome.status_code >= 500


async def ready() -> None:
    """Always ready."""
