"""Runs a console as a process, and a browser without eyes at it."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

HOSTILE_NAME = """it's  my "100%" $HOME & federation"""
"""Of a directory: what is printed to be pasted must quote it."""


@contextmanager
def console(
    *who: object, command: tuple[str, ...] = ("console",)
) -> Iterator[tuple[httpx.Client, str, "subprocess.Popen[str]"]]:
    """Yield who asks a console of its own, the token that it printed, and its process.

    `command` are the words that start it.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    asked = [sys.executable, "-m", "shoal_command", *command, *map(str, who)]
    process = subprocess.Popen([*asked, "--port", str(port)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address, token = (process.stdout.readline().split()[-1] for _ in range(2))
        assert re.fullmatch(rf"http://127\.0\.0\.1:{port}/console", address)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as browser:
            _wait_for(browser)
            yield browser, token, process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _wait_for(browser: httpx.Client) -> None:
    for _ in range(1200):
        try:
            browser.get("/console")
            return
        except httpx.ConnectError:
            time.sleep(0.05)
    raise AssertionError("the console never listened")
