"""Journals that are made in a test, with the signatures of the examples' parties."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import EMPTY, Head, Link, Shown, ShownStatement, Statement, content_hash
from shoal_protocol.trust.manifest import Manifest, Parties
from shoal_protocol.trust.succession import ManifestStatement, written
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.encoding import canonical_json
from tests.world import examples

EPOCH, SALT = f"1-{'5a' * 16}", "b0" * 16
Made = Callable[[str, Link], Statement]
"""Returns a statement of a node in a place of its journal."""


def total(under: Parties, job: str, report: str = "1" * 64) -> Made:
    """Return the total of a job of one round under a version of the manifest."""
    return lambda node, entry: JobTotal(
        manifest=under.digest,
        entry=entry,
        node=node,
        job=job,
        rounds=("2" * 64,),
        report=report,
    )


def version(before: Parties, later: Manifest) -> Made:
    """Return the statement that a version follows the one before."""
    return lambda node, entry: ManifestStatement.of(before, later, node=node, entry=entry)


def journal(node: str, *made: Made | str | None, epoch: str = EPOCH) -> list[Shown]:
    """Return a node's journal; what nobody may read is its content's hash, or None for any."""
    head, entries = EMPTY, list[Shown]()
    for number, each in enumerate(made, 1):
        link = Link(epoch=epoch, number=number, previous=head.hash)
        content = each if isinstance(each, str) else "c" * 64
        if callable(each):
            entries.append(shown(node, link, each(node, link)))
        else:
            entries.append(Shown(**link.model_dump(), content=content))
        head = Head(number, entries[-1].hash)
    return entries


def shown(node: str, link: Link, made: Statement) -> Shown:
    """Return the entry of a statement of a public kind."""
    document = examples.named(node, made).to_json()
    kind, subject = document["body"]["kind"], made.subject
    statement = ShownStatement(salt=SALT, kind=kind, subject=subject, document=document)
    content = content_hash(SALT, kind, subject, canonical_json(document))
    return Shown(**link.model_dump(), content=content, statement=statement)


def countersigned(signed: Signed[Manifest], journals: Sequence[list[Shown]]) -> Signed[Manifest]:
    """Return a version with the statements of it that these journals show."""
    shown = [each.statement for entries in journals for each in entries if each.statement]
    found = [
        from_json(each.document, ManifestStatement)
        for each in shown
        if each.kind == "manifest_statement"
    ]
    mine = [each for each in found if each.body.following == signed.digest]
    return replace(signed, countersignatures=written(mine))
