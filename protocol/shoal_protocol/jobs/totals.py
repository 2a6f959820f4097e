"""Documents that fix a job's rounds: the trainer's end of the job, and each node's signed total.

A release certificate shows the rounds that its author chose. A Compute node that has signed its
total takes no further round of the job, so the totals together name every round in which an honest
node took part. A total also repeats the digest of the trainer's report, and a node signs one total
of a job for ever: a second report of the job gets no total from an honest node.
"""

from collections.abc import Sequence
from typing import Literal

from shoal_protocol.journal import Link, Statement
from shoal_protocol.rounds.attestations import PartialSum
from shoal_protocol.trust.manifest import Parties
from shoal_protocol.wire.documents import NodeDocument, Signed, TrainerDocument
from shoal_protocol.wire.encoding import Digest
from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.service_errors import ChangedReport, WrongCharge


class JobEnd(TrainerDocument):
    """Trainer -> Compute: this is the job's report, no further round will come; sign your total."""

    kind: Literal["job_end"] = "job_end"
    job: Digest
    report: Digest


class JobTotal(Statement, NodeDocument):
    """Compute -> all: every round of the job that this node ever charged; it takes no other.

    Those that were given back count. They are in the order of the node's journal, which is that of
    their numbers; a round that the node never saw is not among them. `report` is the digest that
    the trainer's `JobEnd` names.
    """

    kind: Literal["job_total"] = "job_total"
    job: Digest
    rounds: tuple[Digest, ...]
    report: Digest

    @property
    def subject(self) -> str:
        """Return the job."""
        return self.job


def nodes_of(versions: Sequence[Parties]) -> list[str]:
    """Return the Compute nodes of a job that spanned these manifest versions, each once.

    All have to sign their totals: t nodes can release a sum, so of M nodes at least M - t + 1
    honest ones leave no release without one of them, but only if every one of them was asked.
    """
    return list(
        dict.fromkeys(node.name for parties in versions for node in parties.manifest.compute_nodes)
    )


def check_total(
    signed: Signed[JobTotal],
    parties: Parties,
    *,
    job: str,
    rounds: Sequence[str],
    report: str,
    sums: Sequence[PartialSum],
) -> None:
    """Refuse a total of another `report`, of more `rounds`, or that contradicts what is known.

    `parties` are those of the version that it is bound to. `rounds` are all of the job that are
    known, in order; `sums` are the node's partial sums of these that are at hand, in order. A
    journal to which the node only adds entries has each charge behind the sum before it, and the
    total behind all of them.

    Raises:
        UnknownSigner, WrongSigner, BadSignature, WrongManifest
        ChangedReport: the job's report changed after the node had signed.
        MalformedDocument: it is of another job, or names a round that is not known, or names
            rounds twice or in another order.
        WrongCharge: the node's own charge of a round does not bear it out, or its journal gave a
            place twice.
    """
    parties.verify(signed)
    total = signed.body
    if total.job != job:
        raise MalformedDocument("it is another job's")
    if total.report != report:
        raise ChangedReport(f"{total.node} signed its total for another report of the job")
    places = {round_id: place for place, round_id in enumerate(rounds)}
    named = [places.get(round_id) for round_id in total.rounds]
    shown = [place for place in named if place is not None]
    if len(shown) < len(named):
        raise MalformedDocument(
            f"{total.node} charged {len(named)} rounds of the job, of which "
            f"{len(named) - len(shown)} are not shown"
        )
    if shown != sorted(set(shown)):
        raise MalformedDocument("it names a round twice, or not in order")
    charged = {round_id: count for count, round_id in enumerate(total.rounds, 1)}
    last: Link | None = None
    for each in sums:
        if charged.get(each.round) != each.charge.job_rounds:
            raise WrongCharge(
                f"{total.node} charged round {places[each.round]} as another of the job's than its "
                "total says"
            )
        if last is not None and each.charge.entry.order <= last.order:
            raise WrongCharge(
                f"the journal of {total.node} charges round {places[each.round]} before what the "
                "node signed of an earlier one: it was set back"
            )
        last = each.entry
    if last is not None and total.entry.order <= last.order:
        raise WrongCharge(
            f"the journal of {total.node} has the total before what the node signed of a round: it "
            "was set back"
        )
