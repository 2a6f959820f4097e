"""A vault in a process of its own: started by its agent, or met at named pipes."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_agent.vault_link import VaultGone, VaultLink, VaultPipes, VaultRefused
from shoal_holder import frames, serving
from shoal_holder.isolation import NO_SOCKETS
from shoal_holder.messages import question_about
from shoal_holder.settings import Settings
from shoal_holder.status import silent
from shoal_holder.vault import Vault
from tests.world.around_holder import World

CLIENTS = 12


class Container:
    """A vault at named pipes, which is started again whenever it ended, as its container is."""

    def __init__(self, settings: Settings, pipes: Path) -> None:
        given = settings.model_dump(exclude_none=True)
        variables = {f"SHOAL_{name.upper()}": str(value) for name, value in given.items()}
        self._environment = os.environ | variables | {"SHOAL_VAULT_PIPES": str(pipes)}
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "shoal_holder"]
        self.process = subprocess.Popen(command, env=self._environment)


@pytest.fixture
def container(settings: Settings, world: World) -> Iterator[Container]:
    pipes = world.directory / "pipes"
    pipes.mkdir()
    running = Container(settings, pipes)
    yield running
    running.process.kill()
    running.process.wait()


def meet(world: World) -> VaultLink:
    return VaultLink(VaultPipes.meet(world.directory / "pipes"), silent)


@pytest.mark.slow
async def test_a_vault_at_named_pipes_ends_with_its_courier_and_serves_the_next(
    world: World, container: Container
) -> None:
    for _ in range(2):
        link = meet(world)
        assert link.opened.isolation == NO_SOCKETS
        assert (await link.ask(Vault.opened)).enrolled == CLIENTS
        assert await link.ask(Vault.status) == ()
        link.close()
        assert container.process.wait(30) == 0
        container.start()


async def test_a_vault_that_is_killed_is_missed_at_the_next_question(
    world: World, container: Container
) -> None:
    link = meet(world)
    container.process.send_signal(signal.SIGKILL)
    container.process.wait()
    with pytest.raises(VaultGone):
        await link.ask(Vault.opened)
    link.close()


@pytest.mark.parametrize("name", ["records.csv", "policy.toml"])
def test_files_that_every_user_may_change_are_not_taken(settings: Settings, name: str) -> None:
    (settings.party / name).chmod(0o666)
    with pytest.raises(VaultRefused, match=f"{name} can be changed by every user; run: chmod"):
        VaultLink(VaultPipes.start(settings), silent)


def test_a_vault_whose_noise_process_died_does_not_end_as_if_its_courier_had() -> None:
    class Gone:
        def answer(self, _: bytes) -> bytes:
            raise BrokenPipeError  # as whoever writes to the dead process

    asked = frames.encode(question_about(Vault.opened)())
    with pytest.raises(BrokenPipeError):
        serving._answer(Gone(), io.BytesIO(asked), io.BytesIO())  # type: ignore[arg-type]


def test_a_vault_ends_quietly_when_its_courier_has() -> None:
    class Answering:
        def answer(self, _: bytes) -> bytes:
            return b"answer"

    class Gone(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    asked = frames.encode(question_about(Vault.opened)())
    serving._answer(Answering(), io.BytesIO(asked), Gone())  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_second_vault_over_the_same_keys_does_not_start_until_the_first_has_ended(
    settings: Settings, world: World
) -> None:
    first = VaultLink(VaultPipes.start(settings), silent)
    other = settings.model_copy(update={"data": world.directory / "other"})
    with pytest.raises(VaultRefused, match=r"holder\.key is in use"):
        VaultLink(VaultPipes.start(other), silent)
    first.close()
    VaultLink(VaultPipes.start(other), silent).close()
