"""`shoal journal`: reads and checks the journals of the Compute nodes; anybody may."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal_command.terminal import AsJson, ExitStatus, fail, tell, warn
from shoal_consortium.consortium_files import believed
from shoal_consortium.journal_reading import (
    Finding,
    Reading,
    from_nodes,
    keep_evidence,
    read_journals,
)
from shoal_kit.manifest_chain import open_chain
from shoal_kit.peers.exchange import Reply
from shoal_kit.peers.service_calls import Endpoint, call
from shoal_protocol.certificates.release_certificate import ReleaseCertificate, read_certificate
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.keeping import Loss
from shoal_protocol.rounds.attestations import PartialSum
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.succession import ManifestStatement, lying_nodes
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import ProtocolError, UnknownJob

app = typer.Typer(no_args_is_help=True, help="Check the Compute nodes' journals, or watch them.")
Directory = Annotated[Path, typer.Argument(help="The consortium directory; it is public.")]
Pin = Annotated[str | None, typer.Option(help="Digest of a version that you pinned.")]


@app.command()
def verify(
    directory: Directory,
    pin: Pin = None,
    copy: Annotated[
        Path | None, typer.Option(help="Keep a copy here, and compare with that of the last time.")
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option(help="A copy of somebody else's; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read the journal of every Compute node, and check it from its first entry.

    It compares what nodes signed of the manifest with the versions in the directory, and names two
    statements of one node about one subject. With --copy it finds a journal that was rolled back or
    forked since the last time, and keeps the documents that show a contradiction.

    Exit status: 0 all journals hold; 1 a directory cannot be read; 3 a journal does not hold; 4 a
    node cannot be reached; 7 a journal contradicts itself, another one, or what was seen of it. It
    only warns of entries that an accepted loss replaced, as the journal states.
    """
    chain = believed(open_chain(directory, pin=pin), pin=pin)
    reading = read_journals(from_nodes(), chain, copy=copy, against=against or ())
    said = _said(reading, chain)
    tell(said, as_json, *_sentences(said, chain))
    _end(reading, copy, reading.findings)


@app.command()
def watch(directory: Directory, pin: Pin = None, as_json: AsJson = False) -> None:
    """List jobs that have totals and no certificate at the trainer, and new manifest versions.

    Of each certificate it also checks that the journals have the charges in it.

    Exit status: 0 every job has its certificate; 1 the directory cannot be read; 3 a journal does
    not hold; 4 a service cannot be reached; 6 a job has none; 7 a contradiction. It only warns of
    charges that an accepted loss replaced, as the journal states.
    """
    chain = believed(open_chain(directory, pin=pin), pin=pin)
    reading = read_journals(from_nodes(), chain)
    trainers = {each.manifest.trainer.name: each.manifest.trainer for each in chain}
    versions = {each.digest: each for each in chain}
    totals = [*reading.of_kind(JobTotal)]
    jobs: dict[str, str] = {}  # without a certificate, and why
    findings: list[Finding] = []
    lacking: list[tuple[str, Signed[PartialSum]]] = []
    of_jobs = list(dict.fromkeys(each.body.job for each in totals))
    for job in of_jobs:  # one by one: a certificate may be large
        reason, found = _certified([*trainers.values()], job, versions)
        if found is None:
            jobs[job] = reason
            continue
        findings += (
            Finding(
                f"{each.signer} signed its total for another report than the certificate of job "
                f"{job} has",
                (each.to_json(),),
            )
            for each in totals
            if each.body.job == job and each.body.report != found.report.digest
        )
        sums = (each for one in found.rounds for each in one.partial_sums)
        lacking += ((job, each) for each in sums if _lacks_charge(reading, each.body))
    newer = _newer(reading, chain)
    if lacking:  # or a journal was read before the round was charged
        reading = read_journals(from_nodes(), chain)
    findings += _lost_charges(reading, lacking)
    tell(
        {"without_certificate": jobs, "newer_versions": newer},
        as_json,
        *(f"Job {job} has totals and no certificate: {reason}" for job, reason in jobs.items()),
        *_of_newer(newer, chain),
        f"{len(of_jobs) - len(jobs):,} jobs have totals and a certificate.",
    )
    _end(reading, None, [*reading.findings, *findings])
    if jobs:
        raise typer.Exit(ExitStatus.NOT_YET)


def _lacks_charge(reading: Reading, total: PartialSum) -> bool:
    """Tell whether the journal of a node holds, and lacks the charge that its partial sum names."""
    journals = {each.node: each for each in reading.journals if each.broken is None}
    journal = journals.get(total.node)
    return journal is not None and journal.hash_of(total.charge.entry.number) != total.charged


def _lost_charges(
    reading: Reading, lacking: Iterable[tuple[str, Signed[PartialSum]]]
) -> Iterator[Finding]:
    """Yield a finding for each node and job whose charges its journal lacks."""
    journals = {each.node: each for each in reading.journals}
    alike = defaultdict[tuple[str, str, Loss | None], list[Signed[PartialSum]]](list)
    for job, each in lacking:
        if _lacks_charge(reading, each.body):
            loss = journals[each.signer].loss_of(each.body.charge.entry)
            alike[each.signer, job, loss].append(each)
    for (node, job, loss), sums in alike.items():
        rounds = ", ".join(each.body.round for each in sums)
        what = f"the journal of {node} lacks its charges of job {job}, rounds {rounds}"
        yield Finding(what, tuple(each.to_json() for each in sums), loss)


def _certified(
    trainers: Sequence[ServiceParty], job: str, versions: Mapping[str, Consortium]
) -> tuple[str, ReleaseCertificate | None]:
    """Return why a job has no certificate, or its certificate, whose partial sums are signed.

    Nothing else of it is verified. The newest trainer is asked, and those before it if that does
    not know the job.
    """
    for party in reversed(trainers):
        reply = asyncio.run(call(Endpoint.of(party), "GET", f"/v1/jobs/{job}/certificate"))
        if reply.code != UnknownJob.code:
            return _certificate_in(reply, job, versions)
    return "no trainer of the consortium knows it", None


def _certificate_in(
    reply: Reply, job: str, versions: Mapping[str, Consortium]
) -> tuple[str, ReleaseCertificate | None]:
    if reply.status != HTTPStatus.OK:
        return reply.reason, None
    try:
        found = read_certificate(reply.body)
        for each in (signed for one in found.rounds for signed in one.partial_sums):
            if each.body.manifest not in versions:
                return "it is bound to a version of the manifest that the directory lacks", None
            versions[each.body.manifest].verify(each)
    except ProtocolError as error:
        return f"what the trainer shows is none: {error}", None
    if found.job != job:
        return "what the trainer shows is another job's", None
    return "", found


def _end(reading: Reading, copy: Path | None, findings: Sequence[Finding]) -> None:
    """Warn of each finding and of each journal that does not hold, and end with their status."""
    for each in findings:
        where = f" Both documents are in {keep_evidence(copy, each)}." if copy else ""
        warn(f"{each.told}.{where}")
    for journal in reading.journals:
        if journal.broken is not None:
            warn(f"{journal.node}: {journal.broken}")
        if journal.unread:
            warn(
                f"{journal.node}: {journal.unread:,} statements are bound to versions of the "
                "manifest that the directory does not have, and were not checked"
            )
    if unexplained := sum(each.loss is None for each in findings):
        fail(
            f"{unexplained} contradictions: keep the documents, and tell the other parties",
            ExitStatus.CONTRADICTION,
        )
    broken = [each.node for each in reading.journals if each.broken and not each.silent]
    if broken:
        fail(f"the journals of {', '.join(broken)} do not hold", ExitStatus.REFUSED)
    silent = [each.node for each in reading.journals if each.silent]
    if silent:
        fail(f"{', '.join(silent)} did not answer", ExitStatus.UNREACHABLE)


def _said(reading: Reading, chain: Sequence[Consortium]) -> dict[str, Any]:
    return {
        "consortium": chain[-1].manifest.consortium,
        "journals": [
            {
                "node": each.node,
                "entries": each.entries,
                "new_entries": max(0, each.entries - each.seen),
                "head": each.hash_of(each.entries),
                "holds": each.broken is None,
                "unread": each.unread,
            }
            for each in reading.journals
        ],
        "versions": [
            {
                "version": each.manifest.sequence,
                "digest": each.digest,
                "signed_by": _signers(reading, each.digest),
            }
            for each in chain
        ],
        "newer_versions": _newer(reading, chain),
        **{
            name: [
                {"what": each.told, "documents": [*each.documents]}
                for each in reading.findings
                if (each.loss is not None) == is_explained
            ]
            for name, is_explained in (("findings", False), ("accepted_losses", True))
        },
    }


def _signers(reading: Reading, version: str) -> list[str]:
    """Return the nodes whose journals have a statement of this version of the manifest."""
    statements = reading.of_kind(ManifestStatement)
    return [each.signer for each in statements if each.body.following == version]


def _newer(reading: Reading, chain: Sequence[Consortium]) -> list[dict[str, Any]]:
    """Return the versions that nodes signed and the directory does not have."""
    statements = reading.of_kind(ManifestStatement)
    newer = {(each.body.sequence, each.body.following) for each in statements}
    return [
        {"version": number, "digest": digest, "signed_by": _signers(reading, digest)}
        for number, digest in sorted(newer)
        if number > len(chain)
    ]


def _of_newer(newer: Iterable[dict[str, Any]], chain: Sequence[Consortium]) -> list[str]:
    return [
        f"Version {each['version']} of the manifest, digest {each['digest']}, is signed by "
        f"{', '.join(each['signed_by'])}; the directory ends with version {len(chain)}."
        for each in newer
    ]


def _sentences(said: dict[str, Any], chain: Sequence[Consortium]) -> list[str]:
    manifest = chain[-1].manifest
    return [
        *(
            f"{each['node']}: {each['entries']:,} entries, {each['new_entries']:,} of them new to "
            "the copy; the chain holds."
            for each in said["journals"]
            if each["holds"]
        ),
        *(
            f"Version {each['version']} of the manifest is signed in the journals of "
            f"{', '.join(each['signed_by']) or 'no node'}."
            for each in said["versions"][1:]
        ),
        *_of_newer(said["newer_versions"], chain),
        *([] if said["findings"] else ["No contradictions."]),
        f"To show somebody else another version of the manifest, {lying_nodes(manifest)} of the "
        "Compute nodes must lie, with the authority; to have another certificate of a job, all.",
    ]
