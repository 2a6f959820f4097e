"""The vault's process has no network and loads nothing that could use one."""

import _socket
import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import shoal_holder
from shoal_agent.vault_link import VaultLink, VaultPipes
from shoal_holder.isolation import NO_SOCKETS, NONE, isolation
from shoal_holder.opening import open_vault
from shoal_holder.settings import Settings
from shoal_holder.site import Site, Sources
from shoal_holder.status import silent
from shoal_holder.vault import Vault
from tests.world.around_holder import POLICY, World, no_noise

MODULES = sorted(
    f"shoal_holder.{path.stem}"
    for path in Path(next(iter(shoal_holder.__path__))).glob("*.py")
    if path.stem != "__init__"
)
FORBIDDEN = {
    *("ssl", "_ssl", "asyncio", "http", "http.client", "httpx", "httpcore", "urllib.request"),
    *("uvicorn", "fastapi", "starlette", "structlog", "opendp", "jax", "numpyro", "pickle"),
    *("multiprocessing", "scipy", "matplotlib", "sqlalchemy"),
}
TRY = """
import _socket, subprocess, sys
from shoal_holder.isolation import isolate, isolation
print(isolate())
for family in (_socket.AF_INET, _socket.AF_INET6, _socket.AF_UNIX, _socket.AF_NETLINK):
    for kind in (_socket.SOCK_STREAM, _socket.SOCK_DGRAM, _socket.SOCK_RAW):
        try:
            _socket.socket(family, kind)
        except OSError as error:
            print(type(error).__name__)
        else:
            print("made")
program = "from shoal_holder.isolation import isolation; print('child', isolation())"
print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout)
"""


def run(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return done.stdout.decode().split("\n")


def test_the_vault_loads_nothing_that_reaches_a_network() -> None:
    program = f"import json, sys, {', '.join(MODULES)}; print(json.dumps(sorted(sys.modules)))"
    [loaded, *_] = run(program)
    assert set(json.loads(loaded)) & FORBIDDEN - {"pickle"} == set()
    agent = {name for name in json.loads(loaded) if name.startswith("shoal_agent")}
    assert agent == set()
    assert not {name for name in json.loads(loaded) if name.startswith("shoal_kit.peers")}


def test_no_socket_of_any_kind_can_be_made_once_a_process_is_isolated() -> None:
    said = [line for line in run(TRY) if line]
    assert said[0] == NO_SOCKETS
    assert set(said[1:-1]) == {"PermissionError"} and len(said) == 14
    assert said[-1] == f"child {NO_SOCKETS}"


def test_sockets_are_refused_only_where_no_family_of_them_can_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = _socket.socket

    def refuses(*refused: int) -> Callable[..., _socket.socket]:
        def socket(family: int, kind: int) -> _socket.socket:
            if family in refused:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            return made(family, kind)

        return socket

    monkeypatch.setattr(_socket, "socket", refuses(_socket.AF_INET))
    assert isolation() != NO_SOCKETS
    everything = range(_socket.AF_NETLINK + 1)
    monkeypatch.setattr(_socket, "socket", refuses(*everything))
    assert isolation() == NO_SOCKETS


def test_a_system_that_does_not_let_names_be_mapped_does_not_keep_a_vault_from_starting() -> None:
    refusing = """
from pathlib import Path
import shoal_holder.isolation as isolation
def refused(path, content):
    raise PermissionError(path)
Path.write_text = refused
print(isolation.isolate())
"""
    assert run(refusing)[0] == NO_SOCKETS


async def test_the_vault_imports_nothing_from_the_working_directory(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("pyroaring", "platform", "numpy"):
        (elsewhere / f"{name}.py").write_text("raise SystemExit('imported from here')")
    monkeypatch.chdir(elsewhere)
    link = VaultLink(VaultPipes.start(settings), silent)
    assert link.opened.isolation == NO_SOCKETS
    link.close()


async def test_the_running_vault_cannot_make_a_socket(settings: Settings) -> None:
    """Asked of the kernel: its filter is on, and its network has no interface but loopback."""
    pipes = VaultPipes.start(settings)
    link = VaultLink(pipes, silent)
    assert link.opened.isolation == NO_SOCKETS
    assert pipes._process is not None
    process = Path("/proc") / str(pipes._process.pid)
    status = dict(
        line.split(":\t", 1)
        for line in (process / "status").read_text().splitlines()
        if ":\t" in line
    )
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"
    devices = (process / "net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]
    sockets = [each for each in (process / "fd").iterdir() if "socket" in str(each.readlink())]
    assert sockets == []
    children = (process / "task" / str(pipes._process.pid) / "children").read_text().split()
    assert children == []  # noise is drawn in the same process
    assert (await link.ask(Vault.opened)).isolation == NO_SOCKETS
    link.close()


def test_an_owner_who_requires_isolation_is_served_by_no_other_vault(tmp_path: Path) -> None:
    world = World(tmp_path)
    strict = POLICY.model_copy(update={"require_isolation": True})
    site = Site(lambda _: world.key, world.records, strict, world.book, Sources(no_noise))
    with pytest.raises(ValueError, match="require_isolation"):
        open_vault(site, tmp_path / "data", isolation=NONE)
    open_vault(site, tmp_path / "data", isolation=NO_SOCKETS).close()
