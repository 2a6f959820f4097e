"""What a service says besides the protocol's documents is linked to no client, nor to a share."""

import base64
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog

from shoal_holder.records import Records
from shoal_kit.web.logs import configure_logs
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import envelope_digest
from shoal_protocol.sharing.received import parse
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.wire.documents import Signed
from tests.compute.test_uploads import sealed
from tests.world.around_node import Federation as Nodes
from tests.world.audit import look_at
from tests.world.federation import Federation
from tests.world.people import people
from tests.world.trust import COLUMNS, SITES, TASK_WITH_PROJECTION, Trust, make_trust
from tests.world.wire import Fault, Rule

# Numbers that services log: counts, times and what names a round's or a service's part. A new one
# belongs here only if it cannot be a client's index or depend on one client.
# "days" are those that a certificate is still valid
NUMBERS = {"acknowledged", "count", "held", "joined", "number", "partial_sums", "population"}
NUMBERS |= {"days", "refused", "seconds", "shares", "size", "status"}


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Configure logging into memory, with all that can be logged, and put everything back."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    configure_logs(level="debug", stream=stream)
    yield stream
    root.handlers = handlers
    root.setLevel(level)
    structlog.configure(**before)


async def all_that_was_said(federation: Federation, logged: io.StringIO) -> str:
    """Return the logs and every service's metrics."""
    metrics = [(await federation.ask(name, "/metrics")).text for name in federation.services]
    assert all("shoal_http_request_seconds_count" in text for text in metrics)
    return "\n".join([logged.getvalue(), *metrics])


def linked_to_clients(federation: Federation) -> set[str]:
    """Return what names a client or its answer: keys, answer ids and digests of envelopes."""
    raw: set[bytes] = set()
    for site in SITES:
        key = federation.trust.key(site)
        raw |= {bytes(key), bytes(key.verify_key)}
    for by_node in look_at(federation).envelopes.values():
        for encoded in (each for sent in by_node.values() for each in sent):
            raw |= {envelope_digest(encoded), parse(encoded).header.answer}
    assert len(raw) >= 30
    spelt = {each.hex() for each in raw} | {base64.b64encode(each).decode() for each in raw}
    return spelt | {each.rstrip("=") for each in spelt}


def numbers_in(value: Any, name: str = "") -> Iterator[str]:
    """Yield the names of all fields that hold numbers, at any depth."""
    if isinstance(value, dict):
        for inner, item in value.items():
            yield from numbers_in(item, inner)
    elif isinstance(value, list):
        for item in value:
            yield from numbers_in(item, name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name


@pytest.mark.slow
async def test_logs_and_metrics_of_whole_jobs_hold_no_client_linked_value(
    trust: Trust, tmp_path: Path, logged: io.StringIO
) -> None:
    async with Federation(trust, tmp_path) as federation:
        federation.wire.rules = [
            Rule(Fault.DUPLICATED, path="/shares", nth=(0,)),
            Rule(Fault.ANSWER_LOST, path="/shares", nth=(2,)),
            Rule(Fault.LOST, path="/memberships", nth=(0,)),
        ]
        job = await federation.submit(task=TASK_WITH_PROJECTION)
        await federation.until(lambda: federation.is_collecting(job))
        round_id = (await federation.state(job))["rounds"][-1]["round"]
        await federation.step()
        [sent, *_] = [each.body for each in federation.wire.log if each.path.endswith("/shares")]
        for body in (sent[:-1], sent, b"", bytes(300)):  # refusals are logged, too
            for path in ("shares", "shares/bulk"):
                await federation.ask(
                    federation.nodes[1],
                    f"/v1/rounds/{round_id}/{path}",
                    method="POST",
                    content=body,
                )
        assert (await federation.finish(job))["phase"] == "finished"
        said = await all_that_was_said(federation, logged)
        secrets = linked_to_clients(federation)

    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert {"job finished", "request"} <= {line["event"] for line in lines}
    assert not {secret for secret in secrets if secret in said}
    assert {name for line in lines for name in numbers_in(line)} <= NUMBERS


@pytest.mark.slow
async def test_what_services_say_does_not_change_with_who_takes_part(
    trust: Trust, tmp_path: Path, logged: io.StringIO
) -> None:
    said = []
    for missing in (0, 5):  # one of the clinic's six clients
        logged.truncate(0)
        logged.seek(0)
        others = {"clinic-a": {"records": records_without(missing)}}
        async with Federation(trust, tmp_path / f"{missing}", holders=others) as federation:
            await federation.learn()
        lines = [json.loads(line) for line in logged.getvalue().splitlines()]
        said.append([without_names(line) for line in lines])
    assert len(said[0]) > 20
    assert said[0] == said[1]


def records_without(missing: int) -> Records:
    values = np.full((SITES["clinic-a"], len(COLUMNS)), 80.0)
    values[missing] = np.nan
    return people(COLUMNS, values)


def without_names(line: dict[str, Any]) -> dict[str, Any]:
    """Return a log line without times, and without the random names of jobs and rounds."""
    return {name: value for name, value in line.items() if name not in UNLIKE}


UNLIKE = {"timestamp", "seconds", "job", "round"}


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    opened = Nodes(tmp_path)
    yield opened
    await opened.close()


async def test_a_node_answers_the_same_whatever_a_share_holds(nodes: Nodes) -> None:
    spec: Signed[RoundSpec] = nodes.spec()
    await nodes.announce(spec)
    size = 8 * spec.body.dimension
    fixed = np.random.default_rng(1).bytes(size)
    answers = []
    payloads = (bytes(size), b"\xff" * size, fixed, b"\x01" + bytes(size - 1))
    for number, payload in enumerate(payloads):
        client = 3 * number  # of whom node 0 is due the full vector
        reply = await nodes.upload(0, spec, sealed(spec, client=client, payload=payload))
        answers.append((reply.status_code, reply.content, sorted(reply.headers.items())))
    assert answers[0][0] == 201
    assert answers == [answers[0]] * 4


@pytest.mark.parametrize("kind", ShareKind)
async def test_a_refusal_does_not_say_what_the_refused_share_held(
    nodes: Nodes, kind: ShareKind
) -> None:
    spec: Signed[RoundSpec] = nodes.spec()
    await nodes.announce(spec)
    due = 8 * spec.body.dimension if kind is ShareKind.VECTOR else 32
    answers = set()
    for filler in (b"\x00", b"\xff", b"\x37"):
        moved = sealed(spec, payload=filler * due, kind=kind, box_of=1)  # another node's box
        answers.add((await nodes.upload(0, spec, moved)).content)
    assert len(answers) == 1
