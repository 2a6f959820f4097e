"""The witnessed log: what a job leaves in it, and what a log that forked or was set back gets."""

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest
from structlog.testing import capture_logs

from shoal_consortium.parties import next_manifest
from shoal_consortium.party_files import read_signing_key
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import read_certificate
from shoal_protocol.log.checkpoints import (
    Checkpoint,
    Entry,
    ManifestEntry,
    TooFewWitnesses,
    Witnessed,
)
from shoal_protocol.log.entries import (
    CHECKPOINTS,
    CertificateEntry,
    EndEntry,
    RoundEntry,
    Submission,
    decode_entry,
)
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.manifest_bundle import framed
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import canonical_json
from tests.world.federation import PRIVACY, Federation
from tests.world.parties import problem_code
from tests.world.trust import SITES, Trust, make_trust
from tests.world.wire import Fault, Rule


async def checkpoint(federation: Federation) -> Witnessed | None:
    answer = await federation.ask("aggregator", CHECKPOINTS)
    return Witnessed.decode(answer.content) if answer.status_code == 200 else None


async def entries_of(federation: Federation, size: int) -> list[Entry]:
    answer = await federation.ask("aggregator", "/v1/log/entries")
    return [decode_entry(canonical_json(each)) for each in answer.json()["entries"][:size]]


async def cosigned(federation: Federation, least: int = 1) -> Witnessed:
    """Return the first cosigned checkpoint of so many entries."""

    async def is_there() -> bool:
        found = await checkpoint(federation)
        return found is not None and found.checkpoint.body.size >= least

    await federation.until(is_there)
    found = await checkpoint(federation)
    assert found is not None
    return found


async def test_a_job_leaves_its_rounds_and_ends_in_a_log_that_all_nodes_sign(
    federation: Federation,
) -> None:
    await federation.learn()
    witnessed = await cosigned(federation, 4)
    head = witnessed.cosigned(federation.trust.consortium)
    assert witnessed.cosigners(federation.trust.consortium).keys() == set(federation.nodes)
    found = await entries_of(federation, head.size)
    assert [each.kind for each in found] == ["manifest", "round", "result", "certificate"]
    [version] = [each for each in found if isinstance(each, ManifestEntry)]
    assert version.digest == federation.trust.consortium.digest
    [end] = [each for each in found if isinstance(each, EndEntry)]
    assert end.ledgers.keys() == set(federation.nodes)


async def test_a_certificate_carries_the_proof_that_the_log_has_it(federation: Federation) -> None:
    job = await federation.submit()
    await federation.finish(job)

    async def is_logged() -> bool:
        answer = await federation.ask("trainer", f"/v1/jobs/{job}/certificate")
        return answer.is_success and read_certificate(answer.content).log_proof is not None

    await federation.until(is_logged)
    encoded = (await federation.ask("trainer", f"/v1/jobs/{job}/certificate")).content
    manifest = federation.trust.consortium.signed_manifest.encode()
    logged = verify_certificate(encoded, manifest).logged
    assert logged is not None
    assert set(logged.signed_by) == set(federation.nodes)
    found = await entries_of(federation, logged.checkpoint.size)
    certificate = read_certificate(encoded).body
    assert found[logged.place] == certificate.log_entry
    assert [each.digest for each in found if isinstance(each, RoundEntry)] == [
        each.spec.digest for each in certificate.rounds
    ]
    assert sum(isinstance(each, CertificateEntry) for each in found) == 1


def checkpoints_sent(federation: Federation) -> list[Checkpoint]:
    """Return what the aggregator asked nodes to sign."""
    return [
        Submission.decode(message.body).checkpoint.body
        for message in federation.wire.log
        if message.path.endswith(CHECKPOINTS) and message.body
    ]


class Logged(Federation):
    """A federation that tells what its aggregator signed."""

    async def seconds(self, count: int) -> None:
        for _ in range(count):
            await self.step()
            self.clock.move(1.0)

    def signed(self) -> dict[int, set[str]]:
        """Return the heads of all checkpoints that the aggregator sent to anybody, by size."""
        heads: dict[int, set[str]] = defaultdict(set)
        for sent in checkpoints_sent(self):
            heads[sent.size].add(sent.head)
        return heads


@pytest.fixture
async def watched(trust: Trust, tmp_path: Path) -> AsyncIterator[Logged]:
    async with Logged(trust, tmp_path / "parties") as running:
        yield running


async def ended(federation: Federation) -> None:
    """Run a job that must succeed, and leave the network as it is."""
    job = await federation.submit(privacy=CHEAP)
    await federation.until(lambda: federation.is_over(job))
    assert (await federation.state(job))["phase"] == "finished"


CHEAP = PRIVACY.model_copy(update={"epsilon": 0.5})


async def test_an_aggregator_that_was_set_back_signs_nothing_and_its_rounds_go_on(
    watched: Logged, tmp_path: Path
) -> None:
    federation = watched
    await federation.learn(privacy=CHEAP)
    first = await cosigned(federation, 4)
    await federation.copy_of("aggregator", tmp_path / "backup")
    await federation.learn(privacy=CHEAP)
    second = await cosigned(federation, first.checkpoint.body.size + 3)

    await federation.set_back("aggregator", tmp_path / "backup")
    await federation.start_the_dead()
    with capture_logs() as said:
        report = await federation.learn(privacy=CHEAP)
        await federation.seconds(30)
    assert report.population_size
    assert any("shorter than one that was signed" in each["event"] for each in said)
    assert all(len(heads) == 1 for heads in federation.signed().values())
    shown = await checkpoint(federation)
    assert shown is not None
    assert shown.checkpoint.body == first.checkpoint.body
    assert max(federation.signed()) == second.checkpoint.body.size


async def test_a_log_with_another_history_is_told_by_the_first_node_that_knows(
    watched: Logged, tmp_path: Path
) -> None:
    federation = watched
    await federation.copy_of("aggregator", tmp_path / "empty")
    await federation.learn(privacy=CHEAP)
    await cosigned(federation, 4)
    # no node answers the aggregator while it grows another history
    await federation.set_back("aggregator", tmp_path / "empty")
    await federation.start_the_dead()
    federation.wire.rules.append(Rule(Fault.LOST, sender="aggregator"))
    await ended(federation)
    await ended(federation)
    await federation.seconds(20)
    assert await checkpoint(federation) is None  # nothing was signed unheard
    federation.wire.rules.clear()
    with capture_logs() as said:
        await federation.seconds(90)
    assert any("another history than one" in each["event"] for each in said)
    assert all(len(heads) == 1 for heads in federation.signed().values())
    assert await checkpoint(federation) is None


@pytest.fixture(scope="module")
def witnessed(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("witnessed"), cosignatures=2)


def next_version(trust: Trust) -> Signed[Manifest]:
    key = read_signing_key(trust.directory / "authority" / "signing.key")
    return next_manifest(trust.consortium, roster=trust.consortium.roster, authority=key)


async def hand(federation: Federation, name: str, version: Signed[Manifest]) -> httpx.Response:
    body = framed(version.encode(), federation.trust.consortium.roster.encode())
    return await federation.ask(name, "/v1/manifest", method="PUT", content=body)


async def logged(federation: Federation, version: Signed[Manifest]) -> Signed[Manifest]:
    """Have a version logged, and return it with its proof once a quorum signed."""
    path, content = "/v1/log/manifests", version.encode()
    answer = await federation.ask("aggregator", path, method="POST", content=content)
    assert answer.status_code == 201, answer.text
    place = answer.json()["place"]

    async def is_proved() -> bool:
        answer = await federation.ask("aggregator", f"/v1/log/proofs/{place}")
        return answer.status_code == 200

    await federation.until(is_proved)
    answer = await federation.ask("aggregator", f"/v1/log/proofs/{place}")
    return replace(version, log_proof=answer.text)


async def test_nobody_believes_a_version_that_was_never_logged(
    witnessed: Trust, tmp_path: Path
) -> None:
    async with Federation(witnessed, tmp_path) as federation:
        version = next_version(witnessed)
        for name in federation.services:
            assert problem_code(await hand(federation, name, version)) == "too-few-witnesses"
        proved = await logged(federation, version)
        for name in federation.services:
            assert (await hand(federation, name, proved)).status_code == 200, name
        # what a service hands on has the proof: holders, vaults and analysts believe it
        shown = await federation.ask("trainer", "/v1/manifest")
        assert shown.content == proved.encode()
        federation.analyst_book.accept(proved.encode(), witnessed.consortium.roster.encode())
        await federation.learn()
        for site in SITES:
            assert federation.holder(site)._directory._book.current.digest == version.digest
        await federation.crash("compute-0")
        await federation.start_the_dead()
        again = await federation.ask("compute-0", "/v1/manifest")
        assert again.content == proved.encode()


async def test_a_holder_believes_nothing_that_the_trainer_alone_hands_it(
    witnessed: Trust, tmp_path: Path
) -> None:
    async with Federation(witnessed, tmp_path) as federation:
        version = next_version(witnessed)
        book, roster = federation.party("trainer").resources.book, witnessed.consortium.roster
        with patch("shoal_protocol.log.succession.check_believed"):
            book.accept(version.encode(), roster.encode())  # a lying trainer
        await federation.step()
        holder = federation.holder("clinic-a")
        with pytest.raises(TooFewWitnesses):
            holder._directory._book.accept(version.encode(), roster.encode())
        assert holder._directory._book.current.digest == witnessed.consortium.digest


async def test_with_too_few_nodes_no_version_is_believed(witnessed: Trust, tmp_path: Path) -> None:
    async with Federation(witnessed, tmp_path) as federation:
        await cosigned(federation)
        for name in ("compute-1", "compute-2"):
            await federation.crash(name)
            federation.absent.add(name)
        path, content = "/v1/log/manifests", next_version(witnessed).encode()
        answer = await federation.ask("aggregator", path, method="POST", content=content)
        place = answer.json()["place"]
        for _ in range(60):
            await federation.step()
            federation.clock.move(1.0)
        answer = await federation.ask("aggregator", f"/v1/log/proofs/{place}")
        assert problem_code(answer) == "not-logged"
