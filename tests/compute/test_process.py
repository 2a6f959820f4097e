"""The node as its operator runs it: a process that serves TLS, and refuses to start half right."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from nacl.public import PrivateKey

from shoal_protocol.trust.manifest import AUTHORITY_NAME, ComputeParty
from shoal_protocol.wire.documents import sign
from tests.world import examples
from tests.world.examples import AUTHORITY, signing_key
from tests.world.loopback import pinned_client
from tests.world.tls_identities import make_identity

pytestmark = pytest.mark.slow

STARTED_WITHIN_SECONDS = 60


@pytest.fixture
def party(tmp_path: Path) -> dict[str, str]:
    """A party directory, a consortium directory, and the environment that names them."""
    identity = make_identity()
    own, shared, data = tmp_path / "party", tmp_path / "consortium", tmp_path / "data"
    own.mkdir()
    (shared / "history").mkdir(parents=True)
    identity.write(own)
    private = PrivateKey(examples.box_private_key(0))
    listed = examples.service("compute-0") | {"certificate": identity.pem}
    nodes = (
        ComputeParty(**listed, box_key=bytes(private.public_key).hex()),
        ComputeParty(**examples.service("compute-1"), box_key=examples.box_key(1).hex()),
    )
    manifest = examples.manifest(compute_nodes=nodes)
    signed = sign(manifest, AUTHORITY_NAME, AUTHORITY)
    for directory, prefix in ((shared, ""), (shared / "history", "000001-")):
        (directory / f"{prefix}manifest.json").write_bytes(signed.encode())
        (directory / f"{prefix}roster.bin").write_bytes(examples.roster().encode())
    card = {key: listed[key] for key in ("name", "operator", "url", "verify_key", "certificate")}
    card |= {"role": "compute", "box_key": bytes(private.public_key).hex()}
    (own / "card.json").write_text(json.dumps(card))
    (own / "pin").write_text(signed.digest)
    for name, secret in (
        ("signing.key", bytes(signing_key("compute-0"))),
        ("box.key", bytes(private)),
    ):
        (own / name).write_text(secret.hex() + "\n")
        (own / name).chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "SHOAL_PARTY": str(own),
        "SHOAL_CONSORTIUM": str(shared),
        "SHOAL_DATA": str(data),
        "SHOAL_PORT": str(port),
    }


def start(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "shoal_compute"],
        env={"PATH": os.environ["PATH"]} | environment,
        stderr=subprocess.PIPE,
    )


async def test_a_node_starts_serves_and_stops(party: dict[str, str]) -> None:
    process = start(party)
    certificate = (Path(party["SHOAL_PARTY"]) / "tls.crt").read_text()
    url = f"https://127.0.0.1:{party['SHOAL_PORT']}"
    try:
        async with pinned_client(certificate, base_url=url) as client:
            await _until_ready(client, process)
            reply = await client.get(f"/v1/rounds/{'0' * 64}")
            assert reply.json()["type"] == "urn:shoal:problem:unknown-round"
            assert (await client.get("/metrics")).status_code == 401
            assert (await client.get("/console")).status_code == 404
            token = (Path(party["SHOAL_DATA"]) / "operator.token").read_text().strip()
            shown = await client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
            memory = next(
                line
                for line in shown.text.splitlines()
                if line.startswith("process_resident_memory_bytes")
            )
            assert (await client.get("/v1/ledger")).status_code == 401
            token = (Path(party["SHOAL_DATA"]) / "operator.token").read_text().strip()
            ledger = await client.get("/v1/ledger", headers={"Authorization": f"Bearer {token}"})
            assert ledger.json()["entries"] == []
        assert float(memory.split()[1]) < 300e6
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=STARTED_WITHIN_SECONDS)
    assert process.returncode == 0, log.decode()
    assert b'"error"' not in log


async def test_a_node_shows_how_it_stands_to_its_operator_alone_where_a_console_is_set(
    party: dict[str, str],
) -> None:
    process = start(party | {"SHOAL_CONSOLE": "true"})
    certificate = (Path(party["SHOAL_PARTY"]) / "tls.crt").read_text()
    url = f"https://127.0.0.1:{party['SHOAL_PORT']}"
    try:
        async with pinned_client(certificate, base_url=url) as client:
            await _until_ready(client, process)
            await client.get("/nowhere")
            assert (await client.get("/console")).headers["location"] == "/console/sign-in"
            token = (Path(party["SHOAL_DATA"]) / "operator.token").read_text().strip()
            await client.post("/console/sign-in", data={"token": token})
            page = (await client.get("/console")).text
            assert "compute-0" in page and token not in page
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=STARTED_WITHIN_SECONDS)
    assert b"unmatched" in log and b"/nowhere" not in log


async def _until_ready(client: httpx.AsyncClient, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + STARTED_WITHIN_SECONDS
    while process.poll() is None and time.monotonic() < give_up:
        try:
            if (await client.get("/readyz")).status_code == 200:
                return
        except (httpx.ConnectError, ssl.SSLError):
            await asyncio.sleep(0.05)
    pytest.fail("the node did not become ready")
