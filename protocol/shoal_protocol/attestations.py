"""What Compute nodes and the aggregator attest of a round: holdings, votes, sums and its end."""

import hashlib
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, StringConstraints
from pyroaring import BitMap

from shoal_protocol.documents import Model, Role, RoundDocument
from shoal_protocol.encoding import Base64, Digest, Name, decode_clients, domain


class Holdings(RoundDocument):
    """Compute -> Compute: the clients whose shares this node holds, frozen for ever."""

    signed_by: ClassVar[Role] = Role.COMPUTE
    signer_field: ClassVar[str | None] = "node"

    kind: Literal["holdings"] = "holdings"
    node: Name
    clients: Base64  # canonical Roaring bitmap
    count: int = Field(ge=0)

    def held(self) -> BitMap:
        """Return the clients.

        Raises:
            MalformedDocument: not a canonical bitmap.
        """
        return decode_clients(self.clients)


class Vote(RoundDocument):
    """Compute -> Compute: the cohort that this node will sum over; one per round for ever."""

    signed_by: ClassVar[Role] = Role.COMPUTE
    signer_field: ClassVar[str | None] = "node"

    kind: Literal["vote"] = "vote"
    node: Name
    cohort: Digest
    cohort_size: int = Field(ge=0)


class PartialSum(RoundDocument):
    """Compute -> aggregator: the sum of this node's shares over the cohort."""

    signed_by: ClassVar[Role] = Role.COMPUTE
    signer_field: ClassVar[str | None] = "node"

    kind: Literal["partial_sum"] = "partial_sum"
    node: Name
    cohort: Digest
    cohort_size: int = Field(ge=1)
    values: Base64  # dimension little-endian 64-bit residues


class PartialSumReference(Model):
    """A partial sum by its digest."""

    node: Name
    digest: Digest


class Result(RoundDocument):
    """Aggregator -> trainer: the differentially private sum."""

    signed_by: ClassVar[Role] = Role.AGGREGATOR

    kind: Literal["result"] = "result"
    cohort: Digest
    cohort_size: int = Field(ge=1)
    values: Base64  # dimension little-endian signed 64-bit integers
    partial_sums: tuple[PartialSumReference, ...]


class AbandonmentReason(Model):
    """Why a round ended without a release."""

    code: Literal[
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
    detail: Annotated[str, StringConstraints(max_length=300)] = ""


class Abandonment(RoundDocument):
    """Compute -> aggregator and Compute, or aggregator -> all: nothing is released."""

    signed_by: ClassVar[Role] = Role.COMPUTE_OR_AGGREGATOR
    signer_field: ClassVar[str | None] = "party"

    kind: Literal["abandonment"] = "abandonment"
    party: Name
    reason: AbandonmentReason


def cohort_of(held: Iterable[BitMap]) -> BitMap:
    """Return the clients whose shares all nodes hold, from what each node holds."""
    return BitMap.intersection(*held)


def cohort_digest(round_id: str, cohort: Iterable[int]) -> str:
    """Return the digest that names `cohort` in `round_id`: over ascending 4-byte indices."""
    indices = np.fromiter(cohort, "<u4")
    indices.sort()
    content = domain("cohort") + bytes.fromhex(round_id) + indices.tobytes()
    return hashlib.sha256(content).hexdigest()
