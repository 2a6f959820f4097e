"""Memory of a service while hundreds of connections ask for its roster and never read.

    python -m bench.unread [--readers 600] [--clients 60000] [--hold 10]

Resident memory (Linux) of real processes over TLS, a Compute node, an aggregator and a trainer,
each alone in its turn: idle; at most while anonymous connections ask and leave the answers unread;
once they were cut. Meanwhile one that does read asks for the same, as often as it takes. QUICK=1
in the environment asks with fewer.
"""

import argparse
import asyncio
import os
import resource
import socket
import ssl
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bench.raw_requests import ask, request
from bench.rounds import memory_mib
from bench.small_consortium import made_consortium
from shoal_consortium import quickstart
from shoal_consortium.processes import Federation, Process
from shoal_hosting.tls_certificates import pinned_tls
from shoal_protocol.trust.manifest import ServiceParty

AT_ONCE: Final = 50  # connections that shake hands together
RECEIVE_BYTES: Final = 4096  # of a reader's socket: what it takes without being asked to
SAMPLE_SECONDS: Final = 0.1
CUT_WITHIN_SECONDS: Final = 120.0
MEASURED: Final = ("compute-0", "aggregator", "trainer")


@dataclass(frozen=True)
class Figures:
    """Memory in MiB, and what became of the readers and of one that reads."""

    idle: float
    most: float
    after: float
    answer_mib: float
    cut: int
    tries: int  # of the one that reads
    seconds: float


class Unread:
    """Connections that ask and never read."""

    def __init__(self, service: ServiceParty, content: bytes) -> None:
        url = urlsplit(service.url)
        self._address = (url.hostname or "", url.port or 443)
        self._tls = pinned_tls(service.certificate)
        self._content = content
        self._sockets: list[ssl.SSLSocket] = []

    def open(self, count: int) -> None:
        """Open so many more."""
        for _ in range(count):
            bare = socket.socket()
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            bare.connect(self._address)
            line = self._tls.wrap_socket(bare, server_hostname=self._address[0])
            line.sendall(self._content)
            self._sockets.append(line)

    def close(self) -> None:
        """Close all."""
        for line in self._sockets:
            line.close()


async def measure(
    process: Process, service: ServiceParty, path: str, *, readers: int, hold: float
) -> Figures:
    """Ask `readers` times without reading, hold that for some seconds, and wait for the end."""
    asked = request(service, "GET", path)
    [warm] = await ask(service, [asked], connections=1)
    await asyncio.sleep(1.0)
    idle = most = memory_mib(process.pid)
    files = _open_files(process.pid)
    unread = Unread(service, asked)

    async def opening() -> None:
        for start in range(0, readers, AT_ONCE):
            await asyncio.to_thread(unread.open, min(AT_ONCE, readers - start))

    work, until = asyncio.create_task(opening()), 0.0
    while not until or time.monotonic() < until:
        await asyncio.sleep(SAMPLE_SECONDS)
        most = max(most, memory_mib(process.pid))
        if work.done() and not until:
            await work
            until = time.monotonic() + hold
    tries, seconds = await _read(service, asked, len(warm))
    deadline = time.monotonic() + CUT_WITHIN_SECONDS
    while _open_files(process.pid) > files + 1 and time.monotonic() < deadline:
        await asyncio.sleep(SAMPLE_SECONDS)
        most = max(most, memory_mib(process.pid))
    cut = readers + files - _open_files(process.pid)
    unread.close()
    await asyncio.sleep(1.0)
    return Figures(idle, most, memory_mib(process.pid), len(warm) / 2**20, cut, tries, seconds)


async def _read(service: ServiceParty, asked: bytes, size: int) -> tuple[int, float]:
    """Ask until an answer comes whole; return how often that took, and the last one's seconds."""
    for tries in range(1, 100):
        begun = time.monotonic()
        try:
            [body] = await ask(service, [asked], connections=1)
        except (RuntimeError, OSError):  # refused for now, or cut
            await asyncio.sleep(2.0)
            continue
        if len(body) == size:
            return tries, time.monotonic() - begun
    raise RuntimeError("who reads gets no answer")


def _open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def run(directory: Path, *, readers: int, clients: int, hold: float) -> dict[str, Figures]:
    """Measure each service of a new consortium; return its figures by name."""
    consortium = made_consortium(directory, {"site": clients})
    path, found = f"/v1/rosters/{consortium.roster.digest}", {}
    for start in quickstart.services(directory, consortium):
        if start.name not in MEASURED:
            continue
        party = consortium.party(start.name)
        assert isinstance(party, ServiceParty)
        with Federation() as federation:
            process = Process(
                start.name, start.module, start.environment, directory / f"{start.name}.log"
            )
            federation.start(process)
            found[start.name] = asyncio.run(
                measure(process, party, path, readers=readers, hold=hold)
            )
    return found


def main() -> None:
    """Measure and print."""
    quick = bool(os.environ.get("QUICK"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=60 if quick else 600)
    parser.add_argument("--clients", type=int, default=60_000)
    parser.add_argument("--hold", type=float, default=2.0 if quick else 10.0)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as directory:
        found = run(
            Path(directory),
            readers=arguments.readers,
            clients=arguments.clients,
            hold=arguments.hold,
        )
    print(f"{arguments.readers} connections that do not read, {arguments.clients:,} clients")
    for name, of in found.items():
        print(
            f"{name:11} answers of {of.answer_mib:.1f} MiB: idle {of.idle:.0f} MiB, at most "
            f"{of.most:.0f}, after {of.after:.0f}; {of.cut} cut; who reads had it in "
            f"{of.seconds:.1f} s at try {of.tries}"
        )


if __name__ == "__main__":
    main()
