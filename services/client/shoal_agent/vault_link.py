"""The courier's end of the line to the vault: one question at a time, each answered."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, Final, ParamSpec, Self, TypeVar, cast

from shoal_holder import frames
from shoal_holder.messages import Opened, answer_to, question_about
from shoal_holder.serving import FROM_VAULT, TO_VAULT
from shoal_holder.settings import Settings
from shoal_holder.status import Report
from shoal_holder.vault import Vault
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

CLOSING_SECONDS: Final = 10.0
PIPES_SECONDS: Final = 60.0
"""How long an agent in a container of its own waits for its vault to come."""

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


class VaultGone(Exception):
    """The vault has ended, or cannot store its state; its courier must end, too."""


class VaultRefused(ValueError):
    """The vault does not start; the message says why and what to do."""


class VaultLink:
    """Asks a vault, in a thread: an answer may take seconds."""

    def __init__(self, vault: "VaultPipes | Vault", report: Report) -> None:
        """Ask a vault at the end of pipes, or one in this process; its events go to `report`.

        Raises:
            VaultRefused: it does not start.
        """
        self._vault = vault
        self._report = report
        try:
            asked = frames.encode(question_about(Vault.opened)())
            self.opened: Opened = self._taken(Vault.opened, self._ask(asked))
        except VaultGone as error:
            vault.close()
            raise VaultRefused(str(error)) from None
        self._thread = ThreadPoolExecutor(1, "shoal-vault")

    async def ask(
        self,
        verb: Callable[Concatenate[Any, Arguments], Value],
        *none: Arguments.args,
        **arguments: Arguments.kwargs,
    ) -> Value:
        """Return what a verb of the vault returns: a method that it lists among its verbs.

        Raises:
            ProtocolError: the vault refuses.
            VaultGone: it does not answer any more.
        """
        frame = frames.encode(question_about(verb)(**arguments))
        loop = asyncio.get_running_loop()
        return self._taken(verb, await loop.run_in_executor(self._thread, self._ask, frame))

    def _taken(self, verb: Callable[..., Value], frame: bytes) -> Value:
        """Report the events in an answer, and return its value, or raise what it says instead."""
        answer = frames.decode(frame, {"Answer": answer_to(verb)})
        for event in answer.events:
            self._report(event.name, **event.facts)
        if answer.failed:
            self._report("the vault failed", reason=answer.why)
            raise VaultGone(answer.why)
        if answer.refused is not None:
            raise _error(answer.refused, answer.why)
        return cast(Value, answer.value)

    def _ask(self, frame: bytes) -> bytes:
        try:
            return self._vault.answer(frame)
        except (OSError, MalformedDocument) as error:
            raise VaultGone("the vault has ended; see its standard error") from error

    def close(self) -> None:
        """Wait for the answer that is under way, and end the vault."""
        self._thread.shutdown()
        self._vault.close()


class VaultPipes:
    """A vault in another process, at the other end of two pipes."""

    def __init__(
        self, asks: BinaryIO, answers: BinaryIO, process: "subprocess.Popen[bytes] | None"
    ) -> None:
        """Talk over two pipes; `process` is the vault's, where it is ours to end."""
        self._asks = asks
        self._answers = answers
        self._process = process

    @classmethod
    def start(cls, settings: Settings) -> Self:
        """Start a vault over the files that the settings name."""
        to_vault, asks = os.pipe()
        answers, from_vault = os.pipe()
        process = subprocess.Popen(
            # -P: nothing is imported from the working directory
            [sys.executable, "-P", "-m", "shoal_holder", str(to_vault), str(from_vault)],
            env=_environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(to_vault, from_vault),
        )
        os.close(to_vault)
        os.close(from_vault)
        return cls(os.fdopen(asks, "wb"), os.fdopen(answers, "rb"), process)

    @classmethod
    def meet(cls, directory: Path) -> Self:
        """Open the named pipes of a vault in a container of its own, once it has made them.

        Raises:
            VaultRefused: it does not come.
        """
        latest, asks = time.monotonic() + PIPES_SECONDS, None
        while asks is None:
            try:  # without a reader at the other end this fails, and does not wait
                asks = os.open(directory / TO_VAULT, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                if time.monotonic() >= latest:
                    raise VaultRefused(
                        f"no vault has opened the pipes in {directory}: start it with the same "
                        "directory in SHOAL_VAULT_PIPES"
                    ) from None
                time.sleep(0.1)
        os.set_blocking(asks, True)
        return cls(os.fdopen(asks, "wb"), (directory / FROM_VAULT).open("rb"), None)

    def answer(self, frame: bytes) -> bytes:
        """Return the answer to a question; of a vault that did not start, why.

        Raises:
            OSError, MalformedDocument: the vault has ended.
        """
        with suppress(OSError):  # it may have said so, and ended
            frames.write(self._asks, frame)
        answer = frames.read(self._answers)
        if answer is None:
            raise BrokenPipeError("the vault has ended")
        return answer

    def close(self) -> None:
        """Close the pipes, upon which the vault ends, and wait for it."""
        with suppress(OSError):
            self._asks.close()
        self._answers.close()
        if self._process is not None:
            try:
                self._process.wait(CLOSING_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def _environment(settings: Settings) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    told = {name: getattr(settings, name) for name in Settings.model_fields}
    return ours | {
        f"SHOAL_{name.upper()}": str(value) for name, value in told.items() if value is not None
    }


def _error(code: str, why: str) -> ProtocolError:
    """Return the protocol's error of this code."""
    kinds = [ProtocolError]
    for kind in kinds:
        if kind.code == code:
            return kind(why)
        kinds += kind.__subclasses__()
    return ProtocolError(why)
