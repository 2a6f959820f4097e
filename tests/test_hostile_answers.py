"""Whoever asks a service that lies has no answer, at no more than what an honest one would cost.

The services are real sockets; the bounds are on memory and on what was taken from the line.
"""

import asyncio
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pydantic
import pytest
from nacl.signing import SigningKey

from shoal.jobs import analyst as analyst_module
from shoal.jobs import round_documents
from shoal.jobs.analyst import Analyst
from shoal_agent.directory import Directory
from shoal_compute import assembly
from shoal_consortium.publishing import publish_to_all
from shoal_holder.status import silent
from shoal_kit.peers import service_calls
from shoal_kit.peers.exchange import Connection, Connections, Unavailable
from shoal_kit.peers.peer import Peer
from shoal_kit.peers.service_calls import Endpoint, Refused
from shoal_trainer.peers import Peers
from tests.world import examples
from tests.world.hostile import OK, Hostile, Lie, bombs, drips, hostile, other_lies, whole
from tests.world.tls_identities import make_identity

IDENTITY = make_identity()
BOMBS = bombs()
CHOSEN_BOMBS = [lie for lie in BOMBS if lie.name in {"gzip twice", "deflate"}]
# of these it may read as much as any answer may have
ENDLESS = [lie for lie in other_lies() if lie.name == "chunks without end"]
OTHER_LIES = [lie for lie in other_lies() if lie not in ENDLESS]
CHOSEN = {
    "chunks of one byte",
    "a head without end",
    "a length beyond what comes",
    "somewhere else",
}
CHOSEN_LIES = [lie for lie in OTHER_LIES if lie.name in CHOSEN]
# TCP and TLS get a third of it each, which must be enough on a machine that is busy.
SHORT_SECONDS = 0.6
JOB = "0" * 64
MIB = 1 << 20
# A head, an encoding or a length is refused before anything of the body is taken. Where 16 MiB may
# come, the buffer that they come into may double when it grows.
AT_ONCE_BYTES = 4 * MIB
IN_THE_END_BYTES = 48 * MIB


class Number(pydantic.RootModel[int]):
    """An answer that a command could expect."""


class Clock:
    """A clock by which every pause is over when it is looked at again."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self._now += timedelta(hours=2)
        return self._now


def agent(service: Hostile, directory: Path) -> None:
    """Ask as a data holder's agent does."""

    async def ask() -> None:
        nobody: Any = None  # it is told of newer manifests, and there are none
        peers = Directory(
            service.book(directory),
            nobody,
            clock=Clock(),
            random_bytes=bytes,
            transport=None,
            report=silent,
        )
        try:
            with pytest.raises(Unavailable):
                await peers.trainer.get("/v1/jobs")
            with pytest.raises(Unavailable):
                node = service.consortium.manifest.compute_nodes[0].name
                await peers.party(node, "/v1/x").post("/v1/x", b"{}", "application/octet-stream")
        finally:
            await peers.close()

    asyncio.run(ask())


def analyst(service: Hostile, directory: Path) -> None:
    """Ask as an analyst in a notebook does."""
    asking = Analyst(
        name="a", key=SigningKey(bytes(32)), book=service.book(directory), clock=Clock()
    )
    with pytest.raises(Unavailable):
        asking.job(JOB).state(tries=1)
    with pytest.raises(Unavailable):
        asking.job(JOB).certificate(tries=1)


def trainer(service: Hostile, directory: Path) -> None:
    """Announce a round, and ask for its outcome, as a trainer does."""

    async def ask() -> None:
        consortium = service.consortium
        connections = Connections(None)
        peers = Peers(connections, service.book(directory))
        reception = await peers.announce(
            b"{}",
            consortium,
            request=b"{}",
            asked_under=consortium,
            informed=set(),
            without=frozenset(),
        )
        assert reception.accepted == frozenset()
        assert reception.refusal is None
        spec = examples.spec(manifest=examples.CONSORTIUM)
        with pytest.raises(Unavailable):
            await peers.outcome(consortium.manifest.aggregator, spec, wait_seconds=0)
        await connections.close()

    asyncio.run(ask())


def compute_node(service: Hostile, directory: Path) -> None:
    """Gossip, and report, as a Compute node does."""

    async def ask() -> None:
        peers = Connections(None, answer_seconds=assembly.PEER_SECONDS)
        for method, path, content in (("POST", "/v1/gossip", b"{}"), ("GET", "/v1/rounds", None)):
            with pytest.raises(Unavailable):
                await peers.to(service.party).ask(method, path, content)
        await peers.close()

    asyncio.run(ask())


def publishing(service: Hostile, directory: Path) -> None:
    """Hand out a manifest, as `shoal consortium publish` does."""
    outcomes = publish_to_all([service.consortium])
    assert [outcome.unreachable for outcome in outcomes] == [True] * 4


def command(service: Hostile, directory: Path) -> None:
    """Ask as the commands do that show what a service knows."""
    with pytest.raises(Unavailable):
        Endpoint(service.url, service.certificate).ask(Number, "/v1/rounds", page=1)


def round_account(service: Hostile, directory: Path) -> None:
    """Ask as `shoal round account` does."""
    with pytest.raises(Refused):
        asyncio.run(round_documents.gather(service.book(directory), JOB, print))


CALLERS = [
    agent,
    analyst,
    trainer,
    compute_node,
    publishing,
    command,
    round_account,
]
each_caller = pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.__name__)


def peak_bytes(work: Callable[[], None]) -> int:
    """Return how much more memory Python had at any time while it did `work` than before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everybody wait for a moment only."""
    for waiting in (Connection, Connections, Peer):
        monkeypatch.setitem(waiting.__init__.__kwdefaults__, "answer_seconds", SHORT_SECONDS)
    monkeypatch.setattr(assembly, "PEER_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(service_calls, "ANSWER_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(analyst_module, "CERTIFICATE_SECONDS", 0)


@pytest.mark.parametrize("lie", BOMBS, ids=lambda lie: lie.name)
def test_nothing_is_unfolded(lie: Lie, tmp_path: Path) -> None:
    with hostile(lie, IDENTITY) as service:
        assert peak_bytes(lambda: trainer(service, tmp_path)) < AT_ONCE_BYTES
        assert service.connections >= 1


@each_caller
@pytest.mark.parametrize("lie", CHOSEN_BOMBS, ids=lambda lie: lie.name)
def test_nothing_is_unfolded_by_anybody(
    caller: Callable[..., None], lie: Lie, tmp_path: Path
) -> None:
    with hostile(lie, IDENTITY) as service:
        assert peak_bytes(lambda: caller(service, tmp_path)) < AT_ONCE_BYTES
        assert service.connections >= 1


@pytest.mark.parametrize("lie", OTHER_LIES, ids=lambda lie: lie.name)
def test_a_lie_is_no_answer(lie: Lie, tmp_path: Path) -> None:
    with hostile(lie, IDENTITY) as service:
        assert peak_bytes(lambda: compute_node(service, tmp_path)) < AT_ONCE_BYTES
        assert service.connections == 2  # what lied once is not asked over the same line again
        assert service.heard_out == 0


@each_caller
@pytest.mark.parametrize("lie", CHOSEN_LIES, ids=lambda lie: lie.name)
def test_a_lie_is_an_answer_for_nobody(
    caller: Callable[..., None], lie: Lie, tmp_path: Path
) -> None:
    with hostile(lie, IDENTITY) as service:
        assert peak_bytes(lambda: caller(service, tmp_path)) < AT_ONCE_BYTES
        assert service.connections >= 1
        assert service.heard_out == 0


@pytest.mark.slow
def test_an_answer_without_end_is_cut_off_at_its_bound(tmp_path: Path) -> None:
    [lie] = [each for each in ENDLESS if each.name == "chunks without end"]
    with hostile(lie, IDENTITY) as service:
        assert peak_bytes(lambda: agent(service, tmp_path)) < IN_THE_END_BYTES
        assert service.heard_out == 0


@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize("lie", drips(), ids=lambda lie: lie.name)
def test_a_service_that_drips_is_given_up(lie: Lie, tmp_path: Path) -> None:
    with hostile(lie, IDENTITY) as service:
        compute_node(service, tmp_path)
        assert service.heard_out == 0


@each_caller
@pytest.mark.usefixtures("impatience")
def test_a_service_that_drips_is_given_up_by_everybody(
    caller: Callable[..., None], tmp_path: Path
) -> None:
    [lie] = [each for each in drips() if each.name == "dripping body"]
    with hostile(lie, IDENTITY) as service:
        caller(service, tmp_path)
        assert service.connections >= 1
        assert service.heard_out == 0


async def test_an_answer_too_many_is_the_next_answer_of_the_same_peer_and_then_no_more() -> None:
    """h11 keeps what comes too early; the peer could have said the same a moment later."""
    forged = whole(b"", b'"forged"')
    with hostile(Lie("two answers", whole(b"", b'"first"') + forged), IDENTITY) as service:
        async with Connection(service.url, service.certificate) as asked:
            answers = [(await asked.ask("GET", "/")).json() for _ in range(3)]
        assert answers == ["first", "forged", "first"]
        # A new connection for the third, if the answers to the second have come by then.
        assert service.connections <= 2


@pytest.mark.parametrize(
    "answer",
    [
        Lie("no length", OK + b"\r\n{}", hangs_up=True),
        Lie(
            "a length and chunks",
            OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ),
        Lie("an older protocol", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        Lie("a folded field", OK + b"X: y\r\n z\r\nContent-Length: 2\r\n\r\n{}"),
    ],
    ids=lambda lie: lie.name,
)
async def test_what_no_service_answers_is_taken_as_h11_reads_it(answer: Lie) -> None:
    with hostile(answer, IDENTITY) as service:
        async with Connection(service.url, service.certificate) as asked:
            assert (await asked.ask("GET", "/")).body == b"{}"


@pytest.mark.parametrize(
    "answer",
    [
        whole(b"", b"{}"),
        whole(b"Content-Encoding: identity\r\n", b"{}"),
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n01\r\n}\r\n0\r\n\r\n",
        b"HTTP/1.1 204 \r\n\r\n",
        b"HTTP/1.1 404\r\ncontent-length:0\t\r\n\r\n",
    ],
    ids=["plain", "identity", "chunks", "no content", "terse"],
)
async def test_what_services_do_answer_is_taken_and_the_line_kept(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ALL_PROXY", "http://127.0.0.1:9"), ("SSL_CERT_FILE", "/nowhere")):
        monkeypatch.setenv(name, value)  # nothing is taken from the environment
    with hostile(Lie("none", answer), IDENTITY) as service:
        async with Connection(service.url, service.certificate) as asked:
            replies = [await asked.ask("GET", "/v1/x?y=%20z", parameters=None) for _ in range(3)]
        assert {reply.status for reply in replies} == {int(answer[9:12])}
        assert {reply.body for reply in replies} <= {b"{}", b""}
        assert service.connections == 1
        assert all(head.startswith(b"GET /v1/x?y=%20z HTTP/1.1\r\n") for head in service.heads)
        assert all(b"Accept-Encoding: identity\r\n" in head for head in service.heads)


async def test_a_peer_that_refuses_a_large_body_and_hangs_up_is_not_waited_for() -> None:
    """What h11 has not read when the connection ends is lost: the status, or no answer at all."""
    full = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}"
    with hostile(Lie("early", full, hangs_up=True), IDENTITY) as service:
        async with Connection(service.url, service.certificate) as asked:
            for _ in range(2):
                try:
                    assert (await asked.ask("PUT", "/", bytes(64 * MIB))).status == 413
                except Unavailable as error:
                    assert str(error) == "the connection ended before the answer did"
        assert service.connections == 2


async def test_a_line_that_is_to_close_is_not_used_again() -> None:
    lie = Lie("none", whole(b"Connection: close\r\n", b"{}"))
    with hostile(lie, IDENTITY) as service:
        async with Connection(service.url, service.certificate) as asked:
            for _ in range(2):
                assert (await asked.ask("GET", "/")).status == 200
        assert service.connections == 2


async def test_no_cookie_is_kept() -> None:
    lie = Lie("none", whole(b"Set-Cookie: client=7; Path=/\r\n", b"{}"))
    with hostile(lie, IDENTITY) as service:
        async with Connection(service.url, service.certificate) as asked:
            for _ in range(2):
                await asked.ask("GET", "/")
        assert not any(b"ookie" in head for head in service.heads)


async def test_as_many_lines_are_open_as_are_allowed() -> None:
    with hostile(Lie("none", whole(b"", b"{}")), IDENTITY) as service:
        async with Connection(service.url, service.certificate, connections=2) as asked:
            await asyncio.gather(*(asked.ask("GET", "/") for _ in range(20)))
        assert service.connections <= 2
        assert len(service.heads) == 20


async def test_a_question_that_is_called_off_leaves_its_line_to_nobody() -> None:
    with hostile(Lie("silence", b"", is_silent=True), IDENTITY) as service:
        async with Connection(service.url, service.certificate, connections=1) as asked:
            question = asyncio.create_task(asked.ask("GET", "/"))
            await asyncio.to_thread(service.asked.wait)
            question.cancel()
            with pytest.raises(asyncio.CancelledError):
                await question
            service.lie = Lie("none", whole(b"", b"{}"))
            assert (await asked.ask("GET", "/")).status == 200
        assert service.connections == 2
