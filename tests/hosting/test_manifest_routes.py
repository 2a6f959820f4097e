"""A manifest handed over through HTTP costs a service one judgement at a time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from shoal_hosting import manifest_routes
from shoal_hosting.application import create_application
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
