"""The courier's end of the line to the vault: one message at a time, each answered."""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Self, TypeVar, cast

from shoal_holder import frames, messages
from shoal_holder.messages import Answer, Failure, Message, Opened, Refusal
from shoal_holder.serving import FROM_VAULT, TO_VAULT
from shoal_holder.settings import Settings
from shoal_holder.status import Report
from shoal_holder.vault import Vault
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

CLOSING_SECONDS: Final = 10.0
PIPES_SECONDS: Final = 60.0
"""How long an agent in a container of its own waits for its vault to come."""

AnswerT = TypeVar("AnswerT", bound=Answer)


class VaultGone(Exception):
    """The vault has ended, or cannot store its state; its courier must end, too."""


class VaultRefused(ValueError):
    """The vault does not start; the message says why and what to do."""


class VaultLink:
    """Exchanges messages with a vault, in a thread: an answer may take seconds."""

    def __init__(self, vault: "VaultPipes | Vault", report: Report) -> None:
        """Ask a vault at the end of pipes, or one in this process; its events go to `report`.

        Raises:
            VaultRefused: it does not start.
        """
        self._vault = vault
        self._report = report
        self.opened = vault.opened()
        self.told = Counter[str]()
        """How often the vault reported each event since it opened."""
        _tell(self.opened, report)
        self._thread = ThreadPoolExecutor(1, "shoal-vault")

    async def ask(self, request: Message, kind: type[AnswerT]) -> AnswerT:
        """Return the answer to a message, which is one of `kind`.

        Raises:
            ProtocolError: the vault refuses.
            VaultGone: it does not answer any more.
        """
        frame = frames.encode(request)
        found = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, frame)
        kinds: dict[str, type[Answer]] = messages.kinds_of(kind, Refusal, Failure)
        answer = frames.decode(found, kinds)
        _tell(answer, self._report)
        self.told.update(event.name for event in answer.events)
        if isinstance(answer, Refusal):
            raise _error(answer)
        if isinstance(answer, Failure):
            self._report("the vault failed", reason=answer.reason)
            raise VaultGone(answer.reason)
        return cast(AnswerT, answer)  # the only other kind that is decoded

    def _ask(self, frame: bytes) -> bytes:
        try:
            return self._vault.answer(frame)
        except (OSError, MalformedDocument) as error:
            raise VaultGone("the vault has ended") from error

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

    def opened(self) -> Opened:
        """Wait until the vault is open, and return what it says of itself.

        Raises:
            VaultRefused: it does not start.
        """
        frame = frames.read(self._answers)
        if frame is None:
            self.close()
            raise VaultRefused("the vault ended while it started; it says why on standard error")
        kinds: dict[str, type[Opened | Failure]] = messages.kinds_of(Opened, Failure)
        answer = frames.decode(frame, kinds)
        if isinstance(answer, Opened):
            return answer
        self.close()
        raise VaultRefused(answer.reason)

    def answer(self, frame: bytes) -> bytes:
        """Return the answer to a message.

        Raises:
            OSError, MalformedDocument: the vault has ended.
        """
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


def _tell(answer: Answer, report: Report) -> None:
    for event in answer.events:
        report(event.name, **event.facts)


def _error(refusal: Refusal) -> ProtocolError:
    """Return the protocol's error of this code."""
    kinds = [ProtocolError]
    for kind in kinds:
        if kind.code == refusal.code:
            return kind(refusal.detail)
        kinds += kind.__subclasses__()
    return ProtocolError(refusal.detail)
