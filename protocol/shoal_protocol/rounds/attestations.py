"""Documents in which nodes and aggregator attest holdings, votes, sums and the end of a round.

A round's cohort follows from the holdings of its Compute nodes, by its sharing scheme.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, StringConstraints
from pyroaring import BitMap

from shoal_protocol.journal import Link, Statement, content_hash, entry_hash
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import (
    Model,
    NodeDocument,
    Role,
)
from shoal_protocol.wire.encoding import (
    Base64,
    Clients,
    Digest,
    Name,
    NonceHex,
    Place,
    canonical_json,
    decode_clients,
    domain,
    encode_clients,
)
from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.service_errors import WrongCharge, WrongCohort

LONGEST_DETAIL: Final = 300  # characters
TAG_BYTES: Final = 4  # of an answer id, in the holdings


@dataclass(frozen=True)
class StoredAnswers:
    """Data holders whose answers one node has, or several nodes all have, with each one's tag."""

    holders: BitMap
    tags: bytes = field(repr=False)  # TAG_BYTES for each holder

    @staticmethod
    def of(answers: Iterable[tuple[int, bytes]]) -> "StoredAnswers":
        """Return what is held from (holder, answer id), by ascending holder."""
        pairs = list(answers)
        tags = b"".join(answer[:TAG_BYTES] for _, answer in pairs)
        return StoredAnswers(BitMap([holder for holder, _ in pairs]), tags)

    def tags_of(self, holders: BitMap) -> npt.NDArray[np.uint32]:
        """Return the tags of `holders`, all of whom are held, in ascending order."""
        tags = np.frombuffer(self.tags, "<u4")
        others = (self.holders - holders).to_array()
        if not len(others):
            return tags
        return np.delete(tags, np.searchsorted(self.holders.to_array(), others))


class RoundDocument(Statement):
    """A statement about one round, named by the digest of its spec."""

    round: Digest

    @property
    def subject(self) -> str:
        """Return the round."""
        return self.round


CHARGE: Final = "charge"
"""The journal's kind of an entry by which a round is charged to its population."""
RETURN: Final = "return"
"""The journal's kind of an entry that gives a round's charge back: it released nothing."""


def charge_body(job_rounds: int) -> bytes:
    """Return what a journal keeps of a charge, or of its return, beside the round."""
    return canonical_json({"job_rounds": job_rounds})


class Charge(Model):
    """The entry of a node's journal by which it charged a round to its population.

    Nobody signs the entry itself: what the node signs afterwards names the hash of an entry behind
    it. Price and population are in the round's spec, whose digest is the entry's subject. With the
    salt anybody can compute the entry's hash, which the journal shows.
    """

    entry: Link
    salt: NonceHex
    job_rounds: Place  # of the job, charged so far with this one

    def hash_for(self, round_id: str) -> str:
        """Return the hash of the entry if it charges a round."""
        body = charge_body(self.job_rounds)
        return entry_hash(self.entry, content_hash(self.salt, CHARGE, round_id, body))


END: Final = "end"
"""The journal's kind of a party's last word on a round, of which there is one."""


class RoundEnd(RoundDocument):
    """A party's last word on a round: what it released, or that it never will."""

    @property
    def slot(self) -> str:
        """Return the one kind of all ends."""
        return END


class Holdings(RoundDocument, NodeDocument):
    """Compute -> Compute: the data holders whose answers this node holds, frozen for ever."""

    kind: Literal["holdings"] = "holdings"
    missing: Base64  # canonical Roaring bitmap: the holders that are asked less those held
    count: Clients  # held
    answers: Base64  # of each of these, ascending: the first 4 bytes of its answer's id

    @classmethod
    def attest(
        cls,
        held: StoredAnswers,
        asked: BitMap,
        *,
        manifest: str,
        round_id: str,
        node: str,
        entry: Link,
    ) -> Self:
        """Return what `node` attests when it has `held` of the data holders in `asked`."""
        return cls(
            manifest=manifest,
            entry=entry,
            round=round_id,
            node=node,
            missing=encode_clients(asked - held.holders),
            count=len(held.holders),
            answers=base64.b64encode(held.tags).decode(),
        )

    def held(self, asked: BitMap) -> StoredAnswers:
        """Return which of the data holders that the round asks are held, with their tags.

        Raises:
            MalformedDocument: not a canonical bitmap, holders that are not asked, or counts that
                do not add up.
        """
        missing = decode_clients(self.missing)
        if not missing <= asked or len(asked) - len(missing) != self.count:
            raise MalformedDocument("the holdings contradict whom the round asks")
        tags = base64.b64decode(self.answers)
        if len(tags) != TAG_BYTES * self.count:
            raise MalformedDocument("the holdings do not name one answer for each data holder")
        return StoredAnswers(asked - missing, tags)


class Vote(RoundDocument, NodeDocument):
    """Compute -> Compute: the cohort that this node will sum over; one per round for ever."""

    kind: Literal["vote"] = "vote"
    nodes: tuple[Name, ...] = Field(min_length=2, max_length=255)  # whose holdings give the cohort
    cohort: Digest
    cohort_size: Clients  # in slots, here and below


class PartialSum(RoundEnd, NodeDocument):
    """Compute -> aggregator: the sum of this node's shares over the cohort."""

    kind: Literal["partial_sum"] = "partial_sum"
    cohort: Digest
    cohort_size: Annotated[Clients, Field(ge=1)]
    # with committees: the nodes whose partial sums add up to the total, in the spec's order
    nodes: Annotated[tuple[Name, ...], Field(max_length=255)] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    values: Base64  # dimension little-endian 64-bit residues
    charge: Charge  # by it the node charged the round

    @property
    def over(self) -> tuple[str, int, tuple[str, ...] | None]:
        """Return what partial sums that are added up have in common: cohort, its size, nodes."""
        return self.cohort, self.cohort_size, self.nodes

    @property
    def charged(self) -> str:
        """Return the hash of the entry by which the node charged the round, as it says."""
        return self.charge.hash_for(self.round)

    def check_charge(self, spec: RoundSpec) -> None:
        """Check that the round was charged before, as one of those that the job can have had.

        Raises:
            WrongCharge
        """
        if not self.charge.entry.order < self.entry.order or (
            self.charge.job_rounds > spec.number + 1
        ):
            raise WrongCharge


class PartialSumReference(Model):
    """A partial sum by its digest."""

    node: Name
    digest: Digest


class Result(RoundEnd):
    """Aggregator -> trainer: the differentially private sum."""

    signed_by: ClassVar[Role] = Role.AGGREGATOR

    kind: Literal["result"] = "result"
    cohort: Digest
    cohort_size: Annotated[Clients, Field(ge=1)]
    values: Base64  # dimension little-endian signed 64-bit integers
    partial_sums: tuple[PartialSumReference, ...] = Field(max_length=255)


_SignedCode = Literal[
    "cohort_too_small",
    "holdings_missing",
    "votes_missing",
    "votes_differ",
    "partial_sums_missing",
    "misconduct",
    "called_off_by_node",
    "called_off_by_aggregator",
    "sum_failed",
]
_TrainerCode = Literal[
    "not_accepted", "spec_refused", "manifest_changed", "no_outcome", "outcome_refused"
]
FAILURES: Final[dict[_SignedCode | _TrainerCode, str]] = {
    "cohort_too_small": "too few clients answered",
    "holdings_missing": "not all Compute nodes signed their holdings in time",
    "votes_missing": "not all Compute nodes voted in time",
    "votes_differ": "the Compute nodes voted for different cohorts",
    "partial_sums_missing": "too few partial sums came in time",
    "misconduct": "a party contradicted itself",
    "called_off_by_node": "a Compute node gave it up",
    "called_off_by_aggregator": "the aggregator gave it up",
    "sum_failed": "the partial sums make no possible total",
    "not_accepted": "not all services accepted it in time",
    "spec_refused": "a service refused it",
    "manifest_changed": "the manifest changed before all services accepted it",
    "no_outcome": "the aggregator does not say what became of it",
    "outcome_refused": "the aggregator's word on it is not valid",
}
"""Why a round may fail, in words."""


class RoundFailure(Model):
    """Why a round released nothing that counts, as every party keeps it and shows it.

    `str` of it is what people read.
    """

    code: _SignedCode | _TrainerCode
    detail: Annotated[str, StringConstraints(max_length=LONGEST_DETAIL)] = ""

    def __str__(self) -> str:
        more = f"; {self.detail}" if self.detail else ""
        return f"{FAILURES[self.code]} ({self.code}{more})"


class AbandonmentReason(RoundFailure):
    """A failure that a Compute node or the aggregator signs."""

    code: _SignedCode


class Abandonment(RoundEnd):
    """Compute -> aggregator and Compute, or aggregator -> all: nothing is released."""

    signed_by: ClassVar[Role] = Role.COMPUTE_OR_AGGREGATOR
    signer_field: ClassVar[str | None] = "party"

    kind: Literal["abandonment"] = "abandonment"
    party: Name
    reason: AbandonmentReason


def cohort_of(held: Iterable[StoredAnswers]) -> StoredAnswers:
    """Return the data holders of whom all these nodes hold shares of one answer, with its tag.

    Shares that come from two answers of one holder (its key on two machines, a restored backup,
    a lie) do not belong together: such a holder is left out. Two answers have the same tag with
    probability 2**-32; then the sum is random, and refused as impossible.
    """
    first, *others = held
    common = BitMap.intersection(first.holders, *(each.holders for each in others))
    tags = first.tags_of(common)
    same = np.ones(len(common), np.bool_)
    for each in others:
        same &= each.tags_of(common) == tags
    if same.all():
        return StoredAnswers(common, tags.tobytes())
    return StoredAnswers(BitMap(np.asarray(common.to_array())[same]), tags[same].tobytes())


def cohort_digest(round_id: str, cohort: StoredAnswers, among: Sequence[str] = ()) -> str:
    """Return the digest that names `cohort` in `round_id`: its holders, and their answers by tag.

    Nodes whose shares are of different answers so never vote for one digest. With committees it
    also names the nodes `among` which the cohort is shared: all of them must publish.
    """
    members = np.empty(len(cohort.holders), [("holder", "<u4"), ("tag", f"V{TAG_BYTES}")])
    members["holder"] = cohort.holders.to_array()
    members["tag"] = np.frombuffer(cohort.tags, f"V{TAG_BYTES}")
    content = domain("cohort") + bytes.fromhex(round_id)
    if among:
        content = domain("committees_cohort") + bytes.fromhex(round_id)
        content += canonical_json(list(among))
    return hashlib.sha256(content + members.tobytes()).hexdigest()


def asked_of(spec: RoundSpec, node: str, asked: BitMap) -> BitMap:
    """Return which of the data holders that a round asks share with `node`."""
    if spec.sharing.committee is None:
        return asked
    holders = np.asarray(asked.to_array())
    nodes = len(spec.compute_nodes)
    places = (spec.compute_nodes.index(node) - holders.astype(np.int64)) % nodes
    return BitMap(holders[places < spec.sharing.committee])


def survivors(spec: RoundSpec, among: Sequence[str]) -> list[int]:
    """Return how many nodes of `among` there are in the committee that begins at each node."""
    nodes = len(spec.compute_nodes)
    there = [name in among for name in spec.compute_nodes]
    return [
        sum(there[each] for each in spec.sharing.members(holder=start, nodes=nodes))
        for start in range(nodes)
    ]


def cohort_in(spec: RoundSpec, held: Mapping[str, StoredAnswers]) -> StoredAnswers:
    """Return whose answers can be summed from what these nodes hold, by name.

    Without committees it is `cohort_of` them. With committees a data holder counts if every node of
    its committee that is among these holds a share of one answer, and enough of them are.
    """
    if spec.sharing.committee is None:
        return cohort_of(held.values())
    nodes = len(spec.compute_nodes)
    holders = np.asarray(BitMap.union(*(each.holders for each in held.values())).to_array())
    tags, times = np.zeros(len(holders), np.uint32), np.zeros(len(holders), np.int64)
    same = np.ones(len(holders), np.bool_)
    for each in held.values():
        at, here = np.searchsorted(holders, each.holders.to_array()), each.tags_of(each.holders)
        first = times[at] == 0
        tags[at[first]] = here[first]
        same[at] &= tags[at] == here
        times[at] += 1
    there = np.array(survivors(spec, list(held)))[holders.astype(np.int64) % nodes]
    chosen = same & (times == there) & (there >= spec.sharing.opening(nodes))
    return StoredAnswers(BitMap(holders[chosen]), tags[chosen].tobytes())


def digest_in(spec: RoundSpec, cohort: StoredAnswers, among: Sequence[str]) -> str:
    """Return the `cohort_digest` by which the nodes `among` vote for a cohort of the round."""
    return cohort_digest(spec.digest, cohort, () if spec.sharing.committee is None else among)


def check_nodes(spec: RoundSpec, node: str, nodes: Sequence[str] | None) -> None:
    """Refuse a partial sum of `node` that does not name whose it is added to, with committees.

    Raises:
        WrongCohort
    """
    if spec.sharing.committee is None:
        if nodes is not None:
            raise WrongCohort("only with committees a partial sum names those it is added to")
        return
    named = nodes or ()
    in_order = tuple(name for name in spec.compute_nodes if name in named)
    if tuple(named) != in_order or node not in named or len(named) < spec.threshold:
        raise WrongCohort("a partial sum names enough of the round's nodes, its own among them")
