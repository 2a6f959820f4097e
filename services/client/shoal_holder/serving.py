"""Serves a vault between two pipes: one frame in, one frame out, until the courier has ended."""

import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from shoal_holder import frames
from shoal_holder.messages import Answer
from shoal_holder.noise import exact_noise
from shoal_holder.opening import complaint, from_files
from shoal_holder.settings import Settings
from shoal_holder.site import Sources
from shoal_holder.vault import Vault
from shoal_kit.settings import read_settings
from shoal_kit.startup import CONFIGURATION_ERROR
from shoal_protocol.wire.errors import MalformedDocument

TO_VAULT, FROM_VAULT = "to-vault", "from-vault"


def serve(arguments: Sequence[str], *, isolation: str) -> None:
    """Open the vault that the owner's files describe, and answer on two pipes."""
    os.umask(0o077)  # files are for the owner alone
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too: the courier ends it
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # a container's first process has to
    warnings.simplefilter("ignore")  # they are of numbers, and would show on standard error
    asks, answers = _pipes(arguments)
    threading.Thread(target=_watch, args=(asks,), daemon=True).start()
    try:
        settings = read_settings(Settings, _of_the_vault(os.environ))
        vault = from_files(settings, sources=Sources(exact_noise), isolation=isolation)
    except Exception as error:  # noqa: BLE001 -- without frames, which may show values
        reason = " ".join(complaint(error).split())
        print(f"shoal-vault: will not start: {reason}", file=sys.stderr)
        with suppress(OSError):
            frames.write(answers, frames.encode(Answer(failed=True, why=reason)))
        raise SystemExit(CONFIGURATION_ERROR) from None
    try:
        _answer(vault, asks, answers)
    finally:
        vault.close()


def _answer(vault: Vault, asks: BinaryIO, answers: BinaryIO) -> None:
    answer = b""  # none before the first question
    while True:
        try:
            frames.write(answers, answer)
            frame = frames.read(asks)
        except (OSError, MalformedDocument):
            return  # the courier has ended, perhaps within a message
        if frame is None:
            return
        answer = vault.answer(frame)


def _pipes(arguments: Sequence[str]) -> tuple[BinaryIO, BinaryIO]:
    if len(arguments) >= 2:
        return os.fdopen(int(arguments[0]), "rb"), os.fdopen(int(arguments[1]), "wb")
    directory = Path(os.environ.get("SHOAL_VAULT_PIPES") or ".")
    for name in (TO_VAULT, FROM_VAULT):
        with suppress(FileExistsError):
            os.mkfifo(directory / name, 0o600)
    return (directory / TO_VAULT).open("rb"), (directory / FROM_VAULT).open("wb")


def _watch(asks: BinaryIO) -> None:
    """End this process as soon as the courier has ended, so that its files are free."""
    waiting = select.poll()
    waiting.register(asks.fileno(), 0)  # waits only for the courier's end
    waiting.poll()
    os._exit(0)


def _of_the_vault(environment: "os._Environ[str]") -> dict[str, str]:
    known = {f"SHOAL_{name.upper()}" for name in Settings.model_fields}
    return {name: value for name, value in environment.items() if name in known}
