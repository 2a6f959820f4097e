"""The aggregator's log: a chain of its entries, served in pages, one history after any crash."""

import json
from collections.abc import Sequence

import pytest

from shoal_aggregator import log
from shoal_aggregator.assembly import Service
from shoal_protocol.log.checkpoints import MOST_BETWEEN, Entry, LogProof
from shoal_protocol.log.entries import LogRequest
from shoal_protocol.wire.encoding import canonical_json
from tests.aggregator.conftest import Assemble
from tests.world import examples
from tests.world.logs import certificate, digest, hashes, head, rounds, signed, version
from tests.world.parties import client_of, problem_code, signed_by

ENTRIES: list[Entry] = [version(), *rounds(300)]


def appended(service: Service, entries: Sequence[Entry]) -> list[int]:
    return service.resources.storage.run_here(log.append, entries)


def test_a_log_that_grew_in_any_batches_is_the_chain_of_its_entries(aggregator: Service) -> None:
    run, done = aggregator.resources.storage.run_here, 0
    for size in (1, 2, 255, len(ENTRIES)):
        assert appended(aggregator, ENTRIES[done:size]) == list(range(done, size))
        done = size
        for each in (0, size // 3, size):
            assert run(log.head_at, each) == head(ENTRIES[:each])
        assert run(log.hashes, size // 2, size) == tuple(hashes(ENTRIES[size // 2 : size]))
    assert appended(aggregator, ENTRIES[5:8]) == [5, 6, 7]
    assert run(log.size_of) == len(ENTRIES)


async def test_entries_are_served_in_pages(aggregator: Service) -> None:
    appended(aggregator, ENTRIES)
    async with client_of(aggregator.app) as http:
        for after, count in ((0, 1000), (0, 200), (599, 2), (600, 2), (601, 2), (10**12, 1)):
            answer = await http.get("/v1/log/entries", params={"after": after, "count": count})
            shown = [canonical_json(each) for each in answer.json()["entries"]]
            assert shown == [each.encode() for each in ENTRIES[after : after + count]]
            following = answer.json()["next"]
            assert following == (after + count if len(shown) == count else None)


def test_proofs_are_of_the_first_cosigned_checkpoint_that_has_the_entry(
    aggregator: Service,
) -> None:
    run = aggregator.resources.storage.run_here
    appended(aggregator, ENTRIES)
    for size, is_cosigned in ((100, True), (300, True), (500, False)):
        run(log.keep, log.SignedHead(0, signed(ENTRIES[:size]), is_cosigned))
    for place, size in ((0, 100), (99, 100), (100, 300), (299, 300)):
        proof: LogProof | None = run(log.proof, place)
        assert proof is not None
        assert (proof.place, proof.witnessed.checkpoint.body.size) == (place, size)
        proof.check(ENTRIES[place], examples.CONSORTIUM)
    assert run(log.proof, 300) is None


def test_no_proof_is_longer_than_the_limit(aggregator: Service) -> None:
    run = aggregator.resources.storage.run_here
    entries = [*rounds(MOST_BETWEEN)]
    appended(aggregator, entries)
    run(log.keep, log.SignedHead(0, signed(entries), is_cosigned=True))
    assert run(log.proof, len(entries) - 2 - MOST_BETWEEN) is None
    assert run(log.proof, len(entries) - 1 - MOST_BETWEEN) is not None


async def test_only_the_trainer_may_ask_for_a_certificate_to_be_logged(aggregator: Service) -> None:
    body = LogRequest(manifest=examples.CONSORTIUM.digest, entry=certificate(3))
    async with client_of(aggregator.app) as http:
        for name, code in (("compute-0", "wrong-signer"), ("analyst", "wrong-signer")):
            assert problem_code(await http.post("/v1/log", content=signed_by(name, body))) == code
        for _ in range(2):
            answer = await http.post("/v1/log", content=signed_by("trainer", body))
            assert (answer.status_code, answer.json()) == (201, {"place": 0})
        other = body.model_copy(update={"manifest": digest(1)})
        answer = await http.post("/v1/log", content=signed_by("trainer", other))
        assert problem_code(answer) == "unknown-manifest"


async def test_what_was_decided_before_a_crash_is_logged_after_it(assembled: Assemble) -> None:
    service = assembled()
    async with client_of(service.app) as http:
        spec = signed_by("trainer", examples.SPEC)
        assert (await http.post("/v1/rounds", content=spec)).status_code == 201
    assert service.resources.storage.run_here(log.size_of) == 0
    again = assembled()
    await again.log.step()
    found = again.resources.storage.run_here(log.page, 0, 9)
    kinds = [json.loads(each)["kind"] for each in found]
    assert kinds == ["manifest", "round"]


async def test_nothing_is_signed_while_a_quorum_could_have_signed_more(
    aggregator: Service,
) -> None:
    await aggregator.log.step()
    assert aggregator.resources.storage.run_here(log.size_of) == 1
    assert aggregator.resources.storage.run_here(log.newest_head) is None


@pytest.mark.parametrize("place", [-1, 0, 10**12, 10**30])
async def test_there_is_no_proof_of_what_is_not_cosigned(aggregator: Service, place: int) -> None:
    appended(aggregator, ENTRIES[:5])
    async with client_of(aggregator.app) as http:
        answer = await http.get(f"/v1/log/proofs/{place}")
    assert problem_code(answer) == "not-logged"
