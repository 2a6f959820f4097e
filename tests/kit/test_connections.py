"""A connection trusts one certificate and nothing else."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from shoal_kit.peers.exchange import Connection, Unavailable
from shoal_kit.security import server_tls
from shoal_kit.settings import read_settings
from shoal_kit.startup import StartupRefused
from shoal_kit.tls_certificates import pinned_tls
from shoal_kit.web.application import create_application
from tests.world.loopback import pinned_client, served
from tests.world.tls_identities import Identity, make_identity

IDENTITY = make_identity()


async def ready() -> None:
    """Always ready."""


async def ask(server: Identity, pinned: Identity, directory: Path) -> int:
    """Serve as `server`, connect with `pinned`, and return the status."""
    app = create_application("t", ready=ready, registry=CollectorRegistry())
    tls = server_tls(*server.write(directory), server.pem)
    async with (
        served(app, tls) as port,
        pinned_client(pinned.pem, base_url=f"https://127.0.0.1:{port}") as client,
    ):
        return (await client.get("/healthz")).status_code


async def test_the_pinned_certificate_is_accepted(tmp_path: Path) -> None:
    identity = make_identity()
    assert await ask(identity, identity, tmp_path) == 200


async def test_a_certificate_signed_with_the_pinned_one_is_refused(tmp_path: Path) -> None:
    authority = make_identity(authority=True)
    assert await ask(authority, authority, tmp_path) == 200
    with pytest.raises(httpx.ConnectError, match="not the pinned one"):
        await ask(make_identity(issuer=authority), authority, tmp_path)


async def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    elsewhere = make_identity(address="127.0.0.2")
    with pytest.raises(httpx.ConnectError, match="IP address mismatch"):
        await ask(elsewhere, elsewhere, tmp_path)


async def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    expired = make_identity(days=1)
    with pytest.raises(httpx.ConnectError, match="expired"):
        await ask(expired, expired, tmp_path)


async def refused(url: str, pinned: Identity) -> Unavailable:
    """Ask who is at a URL, in vain; return what is raised."""
    async with Connection(url, pinned.pem) as connection:
        with pytest.raises(Unavailable) as raised:
            await connection.ask("GET", "/healthz")
    return raised.value


class NoSettings(BaseModel, frozen=True):
    """The settings of a service that has none."""


@asynccontextmanager
async def forward_proxy(
    port: int, *, status: bytes = b"200 OK"
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Yield the port of a forward proxy that leads to `port` here, and what it was asked."""
    asked: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.0 " + status + b"\r\n\r\n")
        if status.startswith(b"200"):
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(reader, to_writer), pump(to_reader, writer))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], asked
    server.close()


async def test_a_forward_proxy_carries_tls_to_the_party_that_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_application("t", ready=ready, registry=CollectorRegistry())
    identity = make_identity(address="192.0.2.7")
    url = "https://192.0.2.7:8443"
    async with (
        served(app, server_tls(*identity.write(tmp_path), identity.pem)) as port,
        forward_proxy(port) as (proxy, asked),
    ):
        monkeypatch.setenv("SHOAL_HTTPS_PROXY", f"http://me:s3cret@127.0.0.1:{proxy}")
        async with Connection(url, identity.pem) as connection:
            for _ in range(2):
                assert (await connection.ask("GET", "/healthz")).status == 200
        [head] = asked
        assert head.startswith(b"CONNECT 192.0.2.7:8443 HTTP/1.1\r\n")
        assert b"Proxy-Authorization: Basic bWU6czNjcmV0\r\n" in head
        assert "another certificate" in str(await refused(url, IDENTITY))
        async with forward_proxy(port, status=b"407 Who are you") as (strict, _):
            monkeypatch.setenv("SHOAL_HTTPS_PROXY", f"http://127.0.0.1:{strict}")
            said = str(await refused(url, identity))
            assert said == "the proxy that SHOAL_HTTPS_PROXY names refuses: 407"
    said = str(await refused(url, identity))
    assert said.startswith("the proxy that SHOAL_HTTPS_PROXY names is not reached: ")


async def test_tunnels_in_which_tls_fails_leave_their_places_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_application("t", ready=ready, registry=CollectorRegistry())
    identity = make_identity(address="192.0.2.7")
    async with (
        served(app, server_tls(*identity.write(tmp_path), identity.pem)) as port,
        forward_proxy(port) as (proxy, asked),
        Connection("https://192.0.2.7:8443", IDENTITY.pem, connections=2) as connection,
    ):
        monkeypatch.setenv("SHOAL_HTTPS_PROXY", f"http://127.0.0.1:{proxy}")
        for _ in range(3):
            asking = [connection.ask("GET", "/healthz") for _ in range(2)]
            for error in await asyncio.gather(*asking, return_exceptions=True):
                assert "another certificate" in str(error)
    assert len(asked) == 6


@pytest.mark.parametrize(
    "proxy",
    [
        "http://me:s3cr/et@127.0.0.1:{port}",
        "http://me:s3cr#et@127.0.0.1:{port}",
        "http://me:s3cr?et@127.0.0.1:{port}",
        "http://me:s3cr@et@127.0.0.1:{port}",
        "http://me:s3cr et@127.0.0.1:{port}",
        "https://me:s3cret@127.0.0.1:{port}",
        "socks5://me:s3cret@127.0.0.1:{port}",
        "me:s3cret@127.0.0.1:{port}",
        "http://me:s3cret@127.0.0.1:99999",
    ],
)
async def test_a_proxy_that_cannot_be_used_is_refused_without_telling_or_sending_its_password(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    async with forward_proxy(1) as (port, asked):
        monkeypatch.setenv("SHOAL_HTTPS_PROXY", proxy.format(port=port))
        said = str(await refused("https://192.0.2.7:8443", IDENTITY))
        with pytest.raises(StartupRefused, match="SHOAL_HTTPS_PROXY is not http://") as refusal:
            read_settings(NoSettings, {"SHOAL_HTTPS_PROXY": proxy.format(port=port)})
    assert said.startswith("SHOAL_HTTPS_PROXY is not http://")
    assert asked == []
    assert not any(part in f"{said} {refusal.value}" for part in ("s3cr", "et@", "127.0"))


def test_blocking_sockets_are_held_to_the_same_pin(tmp_path: Path) -> None:
    authority = make_identity(authority=True)
    child = make_identity(issuer=authority)
    tls = server_tls(*child.write(tmp_path), child.pem)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            connection, _ = listener.accept()
            try:
                tls.wrap_socket(connection, server_side=True).close()
            except OSError:
                connection.close()  # the client hangs up: that is what is tested

        thread = threading.Thread(target=accept)
        thread.start()
        with socket.create_connection(listener.getsockname()) as raw:
            with pytest.raises(ssl.SSLCertVerificationError, match="not the pinned one"):
                pinned_tls(authority.pem).wrap_socket(raw, server_hostname="127.0.0.1")
        thread.join()
