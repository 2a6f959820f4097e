"""A manifest handed over through HTTP costs a service one judgement at a time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from shoal_hosting import manifest_routes
from shoal_hosting.application import create_application
from shoal_protocol.manifest import Consortium
from tests import service_parties
from tests.protocol.examples import CONSORTIUM


async def ready() -> None:
    """Always ready."""


async def test_manifests_are_judged_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, most_inside, gate = 0, 0, asyncio.Event()

    async def judge(accept: Callable[[bytes], Any], body: bytes) -> Any:
        nonlocal inside, most_inside
        inside += 1
        most_inside = max(inside, most_inside)
        await gate.wait()
        inside -= 1
        return accept(body)

    monkeypatch.setattr(manifest_routes, "run_in_threadpool", judge)
    app = create_application("t", ready=ready, registry=CollectorRegistry())
    app.include_router(manifest_routes.manifest_routes(service_parties.book(tmp_path)))
    async with service_parties.client_of(app) as client, asyncio.TaskGroup() as group:
        body = manifest_routes.bundle(CONSORTIUM)
        puts = [group.create_task(client.put("/v1/manifest", content=body)) for _ in range(3)]
        for _ in range(100):  # more turns than a request takes until it is judged
            await asyncio.sleep(0)
        assert inside == 1
        gate.set()
    assert most_inside == 1
    assert [put.result().json()["manifest"] for put in puts] == [CONSORTIUM.digest] * 3


async def test_a_version_is_encoded_once_however_often_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = []

    def bundle(consortium: Consortium) -> bytes:
        encoded.append(consortium.digest)
        return b"{}"

    monkeypatch.setattr(manifest_routes, "bundle", bundle)
    app = create_application("t", ready=ready, registry=CollectorRegistry())
    app.include_router(manifest_routes.manifest_routes(service_parties.book(tmp_path)))
    async with service_parties.client_of(app) as client:
        for path in ("/v1/manifest", "/v1/manifests/1", "/v1/manifest"):
            assert (await client.get(path)).content == b"{}"
        assert (await client.get("/v1/manifests/2")).status_code == 404
    assert len(encoded) == 1
