"""The aggregator's log: tiles as the specification says, one history after any crash."""

import json
from collections.abc import Sequence

import pytest

from shoal_aggregator import log
from shoal_aggregator.assembly import Service
from shoal_protocol.log.entries import Entry, LogRequest
from shoal_protocol.log.tiles import check_consistency, check_inclusion, decode_bundle, leaf_hash
from tests.aggregator.conftest import Assemble
from tests.world import examples
from tests.world.logs import certificate, digest, rounds, tree, version
from tests.world.parties import client_of, problem_code, signed_by

ENTRIES: list[Entry] = [version(), *rounds(300)]


def appended(service: Service, entries: Sequence[Entry]) -> list[int]:
    return service.resources.storage.run_here(log.append, entries)


def test_a_log_that_grew_in_any_batches_has_the_tree_of_its_entries(aggregator: Service) -> None:
    expected, done = tree(ENTRIES), 0
    for size in (1, 2, 255, 256, 257, 512, len(ENTRIES)):
        assert appended(aggregator, ENTRIES[done:size]) == list(range(done, size))
        done = size
        run = aggregator.resources.storage.run_here
        assert run(lambda db, size=size: log.tree(db).root(size)) == expected.root(size)
        for old in {0, 1, size // 3, size - 1, size}:
            proof = run(lambda db, old=old, size=size: log.tree(db).consistency(old, size))
            check_consistency(old, size, expected.root(old), expected.root(size), proof)
        place = size // 2
        proof = run(lambda db, place=place, size=size: log.tree(db).inclusion(place, size))
        leaf = leaf_hash(ENTRIES[place].encode())
        check_inclusion(place, size, leaf, proof, expected.root(size))


async def test_tiles_and_bundles_are_served_for_ever_and_no_others(aggregator: Service) -> None:
    appended(aggregator, ENTRIES)
    expected = tree(ENTRIES)
    async with client_of(aggregator.app) as http:
        for path, where in {
            "tile/0/000": (0, 0, 256),
            "tile/0/001": (0, 1, 256),
            "tile/0/002.p/89": (0, 2, 89),
            "tile/1/000.p/2": (1, 0, 2),
        }.items():
            answer = await http.get(f"/log/{path}")
            assert answer.content == expected.read(*where), path
            assert "immutable" in answer.headers["Cache-Control"]
        answer = await http.get("/log/tile/entries/002.p/89")
        assert decode_bundle(answer.content) == [each.encode() for each in ENTRIES[512:]]
        for path in (
            "tile/0/002",
            "tile/0/003",
            "tile/2/000",
            "tile/entries/003.p/1",
            "checkpoint",
            "tile/0/2",
            "tile/0/..%2f..%2fparty",
            "other",
        ):
            assert problem_code(await http.get(f"/log/{path}")) == "not-logged", path


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
    found = again.resources.storage.run_here(log.bundle, 0, 2)
    assert found is not None
    kinds = [json.loads(each)["kind"] for each in decode_bundle(found)]
    assert kinds == ["manifest", "round"]


async def test_nothing_is_signed_while_a_quorum_could_have_signed_more(
    aggregator: Service,
) -> None:
    await aggregator.log.step()
    assert aggregator.resources.storage.run_here(log.size_of) == 1
    assert aggregator.resources.storage.run_here(log.head, log.NEWEST) is None


@pytest.mark.parametrize("place", [-1, 0, 10**12])
async def test_there_is_no_proof_of_what_is_not_cosigned(aggregator: Service, place: int) -> None:
    appended(aggregator, ENTRIES[:5])
    async with client_of(aggregator.app) as http:
        answer = await http.get(f"/v1/log/proofs/{place}")
    assert problem_code(answer) == "not-logged"
