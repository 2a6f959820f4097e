"""Bodies of the largest size that a route takes, of the worst shapes, at every route of everybody.

Routes, their limits and the documents that they take are learnt from the applications themselves.
"""

import gc
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from nacl.signing import SigningKey
from prometheus_client import CollectorRegistry

from shoal_agent.application import create_agent_application
from shoal_agent.console.pages import console_of as owners_console_of
from shoal_command_groups.console.pages import console_of as analysts_console_of
from shoal_kit.pages.console import SIGN_IN
from shoal_kit.party import load_party
from shoal_kit.peers.service_calls import Endpoint
from shoal_protocol.wire.documents import Document, Role
from shoal_service.view import Operator
from tests.federation.test_bad_input import good_spec, offer
from tests.protocol.test_documents import all_kinds
from tests.world import examples
from tests.world.around_trainer_crowds import Asker, crowd, trainer_of
from tests.world.clock import HandMovedClock
from tests.world.federation import Federation
from tests.world.parties import signed_bytes
from tests.world.trust import SITES, Trust

JSON = "application/json"
TOKEN = "a-token-of-many-letters"
LARGEST_SENT = 32 << 20  # of what a route takes: more is only taken to be written to disk
COPIED = 2 << 20  # larger bodies have one shape only, to keep the test short
MOST_MEMORY = 12  # times the body
MOST_TIME = 12  # times that of `json.loads` for a plain body of the size
SPARE_BYTES, SPARE_SECONDS = 8 << 20, 0.25  # for what any request takes
SIGNERS = {Role.HOLDER: "holder", Role.CLIENT: "client", Role.COMPUTE: "compute-0"}


@dataclass
class Served:
    """An application, who asks it, and the ids that its paths may name."""

    app: FastAPI
    http: httpx.AsyncClient
    ids: dict[str, str]
    keys: dict[str, SigningKey]


@asynccontextmanager
async def everybody(trust: Trust, directory: Path) -> AsyncIterator[dict[str, Served]]:
    """Serve all services with a job and a round, a trainer with a crowd job, and all consoles."""
    operator = Operator(TOKEN, console=True)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        federation = await enter(Federation(trust, directory / "all", operator=operator))
        spec = good_spec(trust)
        for name in ("compute-0", "aggregator"):
            assert (await offer(federation, trust, name, spec)).status_code == 201
        job = await federation.submit(join_seconds=120)
        site = next(iter(SITES))
        agent = create_agent_application(
            federation.holder(site),
            token=TOKEN,
            registry=CollectorRegistry(),
            vitals=None,
            metrics_for_anybody=False,
        )
        over = httpx.ASGITransport(agent)
        asked = Endpoint("https://agent.example", None, TOKEN, over)
        clock = federation.clock.of(site)
        owner = owners_console_of(asked, token=TOKEN, clock=clock, owner_key=SigningKey(bytes(32)))
        analyst = analysts_console_of(federation.open_analyst(), token=TOKEN, clock=clock)
        (directory / "crowd").mkdir()
        trainer = trainer_of(directory / "crowd", None, HandMovedClock())
        stack.push_async_callback(trainer.close)
        request = crowd()
        assert (await Asker(trainer.app).open(request)).status_code == 201
        apps: dict[str, Any] = {
            **{name: federation.app(name) for name in ("compute-0", "aggregator", "trainer")},
            **{"agent": agent, "owner's console": owner, "analyst's console": analyst},
            "crowd trainer": trainer.app,
        }
        parties = ("compute-0", "aggregator", "trainer", "analyst", "authority")
        keys = {
            name: load_party(trust.directory / "parties" / name).signing_key
            for name in parties[:-1]
        }
        served = {}
        for name, app in apps.items():
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            http = await enter(
                httpx.AsyncClient(
                    transport=transport,
                    base_url="http://localhost",
                    headers={"Authorization": f"Bearer {TOKEN}"},
                )
            )
            if any(path == SIGN_IN for path, _ in routes(app)):
                await http.post(SIGN_IN, data={"token": TOKEN})
            is_crowd = name == "crowd trainer"
            served[name] = Served(
                app,
                http,
                {"job": request.digest if is_crowd else job, "round_id": spec.digest},
                {each: examples.signing_key(each) for each in keys} if is_crowd else keys,
            )
        yield served


def routes(app: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and method of each route, those of routers that are included too."""
    for route in app.routes:
        if hasattr(route, "original_router"):
            yield from routes(route.original_router)
        for method in getattr(route, "methods", None) or ():
            yield route.path, method


def address(path: str, ids: dict[str, str]) -> str:
    """Fill a path's template in."""
    for name, value in ids.items():
        path = path.replace(f"{{{name}}}", value)
    return (
        path.replace("{digest}", "0" * 64)
        .replace("{path:path}", "x")
        .replace("{", "")
        .replace("}", "")
    )


async def largest_taken(served: Served, method: str, path: str) -> int:
    """Return the largest power of two that a body may declare to have."""
    for power in range(30, 0, -1):
        head = {"Content-Length": str(1 << power)}
        if (await served.http.request(method, path, headers=head)).status_code != 413:
            return min(1 << power, LARGEST_SENT)
    raise AssertionError("a route takes no body at all")


def filled(piece: bytes, size: int, begin: bytes, end: bytes) -> bytes:
    """Return as many equal pieces as fit, between a beginning and an end."""
    return begin + (piece + b",") * ((size - 10) // (len(piece) + 1) - 1) + piece + end


def names(size: int) -> bytes:
    return b"{" + b",".join(b'"%07x":0' % place for place in range(size // 12 - 1)) + b"}"


SHAPES: dict[str, Callable[[int], bytes]] = {
    "arrays in arrays": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "objects in objects": lambda size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
    "empty arrays": lambda size: filled(b"[]", size, b"[", b"]"),
    "empty objects": lambda size: filled(b"{}", size, b"[", b"]"),
    "empty texts": lambda size: filled(b'""', size, b"[", b"]"),
    "digits": lambda size: filled(b"1", size, b"[", b"]"),
    "names": names,
    "one name": lambda size: filled(b'"a":0', size, b"{", b"}"),
    "a number of a million digits": lambda size: b"9" * size,
    "surrogates": lambda size: b'"' + b"\\ud800" * (size // 6 - 1) + b'"',
    "zeros": lambda size: b'"' + b"\\u0000" * (size // 6 - 1) + b'"',
    "bytes": lambda size: b"\x00" * size,
}
FORMS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "fields": ("application/x-www-form-urlencoded", lambda size: b"a=&" * (size // 3)),
    "files": ("multipart/form-data; boundary=x", lambda size: b"\r\n--x\r\n\r\n" * (size // 9)),
    "parameters": (
        "multipart/form-data; boundary=x",
        lambda size: b"--x\r\nContent-Disposition: form-data" + b';a="b"' * (size // 6 - 20),
    ),
}
shape = cache(lambda name, size: SHAPES[name](size))


def as_body(kind: type[Document], inside: bytes) -> bytes:
    """Return the body of a document of a kind whose fields all have the value `inside`."""
    names = sorted(kind.model_fields.keys() - {"kind", "version", "manifest"})
    values = {name: b"0" for name in names}
    values[next((each for each in names if is_several(kind, each)), names[0])] = inside
    values |= {"kind": json.dumps(kind.model_fields["kind"].default).encode(), "version": b"1"}
    return b"{" + b",".join(b'"%s":%s' % (n.encode(), values[n]) for n in sorted(values)) + b"}"


def is_several(kind: type[Document], name: str) -> bool:
    annotation = kind.model_fields[name].annotation
    return getattr(annotation, "__origin__", None) is tuple


def signed(kind: type[Document], body: bytes, served: Served) -> bytes:
    """Sign a body by the party in charge, where this test has its key."""
    signer = SIGNERS.get(kind.signed_by, kind.signed_by.value.split("_")[0])
    name, key = kind.model_fields["kind"].default, served.keys.get(signer, SigningKey(bytes(32)))
    return signed_bytes(name, body, signer, key)


def documents_of(app: FastAPI) -> dict[str, list[type[Document]]]:
    """Return which kinds of documents are posted to each path, by what is published."""
    published, kinds = app.openapi(), {each.__name__: each for each in all_kinds(Document)}
    found = {}
    for path, operations in published["paths"].items():
        text = json.dumps([each.get("requestBody") for each in operations.values()])
        named = [each for each in kinds if f'schemas/{each}"' in text]
        found[path] = [kinds[each] for each in named]
    return found


def peak_bytes() -> int:
    """Return the most memory that this process held since `forget_peak`, or ever."""
    [line] = [
        each for each in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in each
    ]
    return int(line.split()[1]) << 10


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@cache
def plain_seconds(size: int) -> float:
    """Return how long an ordinary text of that size takes to parse, on this machine now."""
    text = filled(b'{"name":"0123456789","value":0.5}', size, b"[", b"]")
    began = time.process_time()
    json.loads(text)
    return time.process_time() - began


@pytest.fixture
def only_new_garbage() -> None:
    """Have the collector leave alone what the tests before this one still hold."""
    gc.collect()
    gc.freeze()


async def cost(served: Served, method: str, path: str, body: bytes, kind: str) -> tuple[int, float]:
    """Return by how many bytes a request had this process grow, and its seconds of processor.

    All that services do in other threads is done in the event loop's here: no stall is longer.
    """
    forget_peak()
    held, began = peak_bytes(), time.process_time()
    answer = await served.http.request(method, path, content=body, headers={"Content-Type": kind})
    assert answer.status_code != 500, (path, answer.text)
    return peak_bytes() - held, time.process_time() - began


def bodies(
    served: Served, size: int, kinds: list[type[Document]]
) -> Iterator[tuple[str, bytes, str]]:
    """Yield bodies by what they are, with their types: of each shape, and documents that have it.

    The documents have the right signatures, as a party's that lies.
    """
    for name in SHAPES if size <= COPIED else ("empty objects",):
        yield name, shape(name, size), JSON
    for kind in kinds:
        for name in ("empty objects", "names"):
            body = as_body(kind, shape(name, size - 2_000))
            yield f"{name} in {kind.__name__}", signed(kind, body, served), JSON
    for name, (form, made) in FORMS.items():
        yield name, made(min(size, COPIED)), form


def is_asked_elsewhere(name: str, path: str) -> bool:
    """Tell whether a route is another party's too: each is asked once."""
    shared = ("/console", "/v1/manifest") if name in ("aggregator", "trainer") else ()
    return path.startswith(shared) or (name == "crowd trainer") != path.startswith("/v1/crowds")


@pytest.mark.slow
async def test_no_body_takes_more_than_a_multiple_of_its_size(
    trust: Trust, tmp_path: Path, only_new_garbage: None
) -> None:
    asked = set[tuple[str, str]]()
    async with everybody(trust, tmp_path) as parties:
        for name, served in parties.items():
            takes = documents_of(served.app)
            for path, method in routes(served.app):
                if method == "GET" or is_asked_elsewhere(name, path):
                    continue
                at = address(path, served.ids)
                size = await largest_taken(served, method, at)
                for what, body, kind in bodies(served, size, takes.get(path, [])):
                    grown, seconds = await cost(served, method, at, body, kind)
                    where = f"{what}, {size} bytes, {method} {path}, {name}"
                    assert grown <= MOST_MEMORY * size + SPARE_BYTES, (where, grown)
                    most_seconds = MOST_TIME * plain_seconds(size) + SPARE_SECONDS
                    if seconds > most_seconds:  # other processes may have had the caches
                        _, seconds = await cost(served, method, at, body, kind)
                    assert seconds <= most_seconds, (where, seconds, most_seconds)
                asked.add((name, path))
    assert len(asked) > 40, asked
