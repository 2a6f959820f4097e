"""The witnessed log: what a job leaves in it, and what a log that forked or was set back gets."""

from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.packing import read_certificate
from shoal_protocol.log.entries import (
    CertificateEntry,
    EndEntry,
    Entry,
    ManifestEntry,
    RoundEntry,
    decode_entry,
)
from shoal_protocol.log.notes import Note, read_note
from shoal_protocol.log.tiles import bundles, decode_bundle, tile_path
from shoal_protocol.log.witnessed import check_cosigned, cosigners
from tests.world.federation import Federation


async def checkpoint(federation: Federation) -> Note | None:
    answer = await federation.ask("aggregator", "/log/checkpoint")
    return read_note(answer.text) if answer.status_code == 200 else None


async def fetch(federation: Federation, path: str) -> bytes:
    answer = await federation.ask("aggregator", f"/log/{path}")
    assert answer.status_code == 200, path
    return answer.content


async def entries_of(federation: Federation, size: int) -> list[Entry]:
    found: list[Entry] = []
    for index, width in bundles(0, size):
        content = await fetch(federation, tile_path("entries", index, width))
        found += [decode_entry(each) for each in decode_bundle(content)]
    return found


async def cosigned(federation: Federation, least: int = 1) -> Note:
    """Return the first cosigned checkpoint of so many entries."""

    async def is_there() -> bool:
        note = await checkpoint(federation)
        return note is not None and note.checkpoint.size >= least

    await federation.until(is_there)
    note = await checkpoint(federation)
    assert note is not None
    return note


async def test_a_job_leaves_its_rounds_and_ends_in_a_log_that_all_nodes_sign(
    federation: Federation,
) -> None:
    await federation.learn()
    note = await cosigned(federation, 4)
    manifest = federation.trust.consortium.manifest
    head = check_cosigned(note, manifest)
    assert cosigners(note, manifest).keys() == set(federation.nodes)
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
        return answer.headers["ETag"].endswith('-logged"')

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
