"""Computes the worked example of docs/protocol.md: one round of three data holders and three nodes.

python -m docs.worked_example            prints every block of the example
python -m docs.worked_example --write    writes the blocks into the page

The page names each block in a comment above it: `<!-- example: NAME -->`. Every private key, seed
and id follows from a label, and the noise from fixed bytes, so the example always has the same
bytes. A real party draws all of these from its operating system's generator.
"""

import base64
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyroaring import BitMap

from shoal_holder.noise import discrete_gaussian
from shoal_protocol import journal
from shoal_protocol.jobs.job_request import PrivacyDemand
from shoal_protocol.journal import Link, Statement
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.attestations import (
    CHARGE,
    Charge,
    Holdings,
    PartialSum,
    PartialSumReference,
    Result,
    StoredAnswers,
    Vote,
    charge_body,
    cohort_digest,
    cohort_of,
)
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.rounds.round_spec import check_spec
from shoal_protocol.sharing.envelope import Header, envelope_digest, seal
from shoal_protocol.sharing.schemes import ADDITIVE, expand
from shoal_protocol.sharing.shares import Share, ShareKind, from_ring, to_ring
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.policy import Policy
from shoal_protocol.trust.roster_changes import roster_of
from shoal_protocol.wire.documents import Document, sign
from shoal_protocol.wire.vectors import encode_uint64
from shoal_studies.catalogue.single_numbers import NormalMeanTask
from shoal_studies.study_request import StudyRequest
from tests.world import examples
from tests.world.examples import random_bytes, seed, signing_key

PAGE: Final = Path(__file__).with_name("protocol.md")
MARK: Final = re.compile(r"(<!-- example: ([a-z-]+) -->\n\n```[a-z]*\n)(.*?)(```\n)", re.DOTALL)
NODES: Final = ("compute-0", "compute-1", "compute-2")
PRESSURES: Final = ((118.0, 142.0), (131.0, 175.0), (156.0,))  # of each holder's clients
OPENED_AT: Final = examples.OPENED_AT
ABSENT: Final = (2, 2)  # the holder whose share does not reach this node


def holder_key(holder: int) -> Any:
    """Return the signing key of a data holder."""
    return signing_key(f"holder {holder}")


ROSTER: Final = roster_of(
    (holder_key(holder).verify_key, len(clients)) for holder, clients in enumerate(PRESSURES)
)
MANIFEST: Final = examples.manifest(
    of=ROSTER,
    policy=Policy(
        minimum_cohort=4,
        minimum_colluders=0,
        colluding_holders=0,
        minimum_holders=2,
        maximum_epsilon=2.0,
        delta=1e-6,
        mechanisms=("discrete_gaussian",),
        queries=("first_moments",),
        maximum_round_seconds=3600,
    ),
)
CONSORTIUM: Final = Consortium.pinned(
    sign(MANIFEST, "authority", examples.AUTHORITY).encode(),
    ROSTER.encode(),
    digest=MANIFEST.digest,
)
TASK: Final = NormalMeanTask(
    column=ColumnBounds(name="systolic_pressure", lower=60.0, upper=220.0),
    sd=15.0,
    records_per_client=1,
)
CLIENTS: Final = sum(map(len, PRESSURES))
REQUEST: Final = StudyRequest(
    manifest=MANIFEST.digest,
    nonce=seed("nonce")[:16].hex(),
    analyst="analyst",
    purpose="Mean blood pressure",
    task=TASK,
    terms=TASK.terms(least=CLIENTS, most=CLIENTS),
    privacy=PrivacyDemand(epsilon=2.0, delta=1e-6, dropouts=1, colluders=0),
    sharing=ADDITIVE,
    minimum_population=CLIENTS,
    maximum_population=CLIENTS,
    join_deadline=OPENED_AT,
    round_seconds=60,
    grace_seconds=30,
)
SPEC: Final = make_spec(
    manifest=CONSORTIUM,
    job=REQUEST.digest,
    number=0,
    query=REQUEST.terms.kinds[0].query,
    mechanism="discrete_gaussian",
    cost=MANIFEST.policy.cap.whole,
    population=BitMap(range(CLIENTS)),
    dropouts=1,
    colluders=0,
    opened_at=OPENED_AT,
    deadline=OPENED_AT + timedelta(seconds=60),
    give_up_at=OPENED_AT + timedelta(seconds=90),
    sharing=ADDITIVE,
)
check_spec(SPEC, CONSORTIUM, now=OPENED_AT)


def answer_id(holder: int) -> bytes:
    """Return the id of a data holder's answer: 12 bytes, then the epoch 0 in 4."""
    return seed(f"answer of holder {holder}")[:12] + bytes(4)


def header(holder: int, node: int) -> Header:
    """Return the header of a data holder's envelope for a node."""
    return Header(
        kind=ADDITIVE.kind_for(holder=holder, node=node, nodes=len(NODES)),
        node=node,
        holder=holder,
        manifest=MANIFEST.digest,
        round_id=SPEC.digest,
        answer=answer_id(holder),
    )


class Answer:
    """A data holder's answer: its vector, its noise, its shares and its envelopes."""

    def __init__(self, holder: int) -> None:
        self.holder = holder
        records = np.array(PRESSURES[holder])[:, np.newaxis]
        self.rows = [SPEC.query.encode(record[np.newaxis]) for record in records]
        self.vector = np.sum(self.rows, axis=0)
        fixed = random_bytes(f"noise of holder {holder}")
        root = len(records) ** 0.5
        self.noise = np.concatenate(
            [
                discrete_gaussian(root * part.scale, count, random_bytes=fixed)
                for count, part in SPEC.noise_blocks()
            ]
        )
        self.noisy = self.vector + self.noise
        self.shares = ADDITIVE.split(
            to_ring(self.noisy),
            holder=holder,
            nodes=len(NODES),
            random_bytes=random_bytes(f"seeds of holder {holder}"),
        )
        self.envelopes = [
            seal(
                share,
                header(holder, node),
                box_key=examples.box_key(node),
                key=holder_key(holder),
                random_bytes=random_bytes(f"ephemeral key of holder {holder} for node {node}"),
            )
            for node, share in enumerate(self.shares)
        ]


ANSWERS: Final = [Answer(holder) for holder in range(len(PRESSURES))]
HELD: Final = [
    StoredAnswers.of(
        (holder, answer_id(holder)) for holder in range(len(PRESSURES)) if (holder, node) != ABSENT
    )
    for node in range(len(NODES))
]
COHORT: Final = cohort_of(HELD)
ASKED: Final = BitMap(range(len(PRESSURES)))
NAMED: Final[dict[str, Any]] = {
    "cohort": cohort_digest(SPEC.digest, COHORT),
    "cohort_size": sum(len(PRESSURES[holder]) for holder in COHORT.holders),
}
BOUND: Final[dict[str, Any]] = {"manifest": MANIFEST.digest, "round": SPEC.digest}


class Journal:
    """The journal of a party that begins with this round."""

    def __init__(self, party: str) -> None:
        self.party, self.head = party, journal.EMPTY
        self.lines: list[str] = []

    def add(self, attest: Callable[..., Statement], **fields: Any) -> Any:
        """Append the statement that `attest` makes of its place and `fields`, and return it."""
        body = attest(entry=self._next(), **fields)
        document = sign(body, self.party, signing_key(self.party)).encode()
        self._append(body.slot, body.subject, document)
        return body

    def charge(self) -> Charge:
        """Append the charge of this round, the first of its job, and return it."""
        link = self._next()
        salt = self._append(CHARGE, SPEC.digest, charge_body(1))
        return Charge(entry=link, salt=salt, job_rounds=1)

    def _next(self) -> Link:
        epoch = f"1-{seed(f'epoch of {self.party}')[:16].hex()}"
        return Link(epoch=epoch, number=self.head.number + 1, previous=self.head.hash)

    def _append(self, kind: str, subject: str, body: bytes) -> str:
        """Append an entry, and return its salt."""
        link = self._next()
        salt = seed(f"salt {link.number} of {self.party}")[:16].hex()
        content = journal.content_hash(salt, kind, subject, body)
        self.head = journal.Head(link.number, journal.entry_hash(link, content))
        self.lines += [
            f"entry {link.number}  {kind}",
            f"  salt     {salt}",
            f"  content  {content}",
            f"  hash     {self.head.hash}",
        ]
        return salt


JOURNALS: Final = {name: Journal(name) for name in (*NODES, "aggregator")}
CHARGES: Final = {node: JOURNALS[node].charge() for node in NODES}
HOLDINGS: Final = [
    JOURNALS[node].add(
        Holdings.attest,
        held=held,
        asked=ASKED,
        manifest=MANIFEST.digest,
        round_id=SPEC.digest,
        node=node,
    )
    for node, held in zip(NODES, HELD, strict=True)
]
VOTES: Final = [
    JOURNALS[node].add(Vote, node=node, nodes=NODES, **NAMED, **BOUND) for node in NODES
]


def residues(share: Share) -> np.ndarray:
    """Return the residues that a share stands for, shape (d,)."""
    if share.kind is ShareKind.SEED:
        return expand(share.payload, SPEC.dimension)
    return np.frombuffer(share.payload, "<u8")


SUMS: Final = [
    np.sum([residues(ANSWERS[holder].shares[node]) for holder in COHORT.holders], axis=0)
    for node in range(len(NODES))
]
PARTIAL_SUMS: Final = [
    JOURNALS[node].add(
        PartialSum,
        node=node,
        values=encode_uint64(total),
        charge=CHARGES[node],
        **NAMED,
        **BOUND,
    )
    for node, total in zip(NODES, SUMS, strict=True)
]
TOTAL: Final = np.sum(SUMS, axis=0)
RESULT: Final = JOURNALS["aggregator"].add(
    Result,
    values=encode_uint64(TOTAL),
    partial_sums=tuple(
        PartialSumReference(node=each.node, digest=each.digest) for each in PARTIAL_SUMS
    ),
    **NAMED,
    **BOUND,
)


def in_lines(content: bytes, size: int = 32) -> list[str]:
    """Return bytes in hex, so many to a line."""
    return [content[start : start + size].hex() for start in range(0, len(content), size)]


def laid_out(parts: Sequence[tuple[str, bytes]]) -> str:
    """Return parts of a file, one behind the other: offset, bytes in hex, and what they are."""
    lines, offset = [], 0
    for what, content in parts:
        for number, line in enumerate(in_lines(content)):
            named = "" if number else f"  {what}"
            lines.append(f"{offset + 32 * number:>4}  {line}{named}")
        offset += len(content)
    return "\n".join(lines)


def shown(body: Document) -> str:
    """Return the body of a document, indented, and its digest."""
    return f"{json.dumps(body.model_dump(mode='json'), indent=2)}\n\ndigest {body.digest}"


def whole(body: Document, signer: str) -> str:
    """Return a signed document as it crosses the wire, broken into lines of 96 characters."""
    encoded = sign(body, signer, signing_key(signer)).encode().decode()
    return "\n".join(encoded[start : start + 96] for start in range(0, len(encoded), 96))


RUNS: Final = (
    (2, "a bitmap with run containers"),
    (2, "number of containers, less 1"),
    (1, "container 0 is one of runs"),
    (2, "container 0: the high 16 bits of its members"),
    (2, "its number of members, less 1"),
    (2, "number of runs"),
    (2, "the run begins at 0"),
    (2, "and has 4 more members"),
)
ARRAY: Final = (
    (4, "a bitmap without run containers"),
    (4, "number of containers"),
    (2, "container 0: the high 16 bits of its members"),
    (2, "its number of members, less 1"),
    (4, "offset of its content"),
    (2, "member 2"),
)


def bitmap(encoded: str, names: Sequence[tuple[int, str]]) -> str:
    """Return the layout of a set."""
    return laid_out(cut(base64.b64decode(encoded), names))


def cut(content: bytes, names: Sequence[tuple[int, str]]) -> list[tuple[str, bytes]]:
    """Return the parts of `content`, which have these sizes and names."""
    ends = list(itertools.accumulate(size for size, _ in names))
    return [
        (what, content[end - size : end]) for (size, what), end in zip(names, ends, strict=True)
    ]


def price() -> str:
    """Return how noise and price of the round follow from each other."""
    design, parties, scale = SPEC.design, SPEC.parties, SPEC.noise.scale
    blocks = [f"{each.relative_scale:.10f}" for each in design.blocks]
    return "\n".join(
        (
            f"sensitivity      {design.sensitivity:.1f}",
            f"relative scales  {' '.join(blocks)}",
            f"clients          {parties}",
            f"mu               {design.sensitivity:.1f} / ({scale:.1f} * sqrt({parties}))"
            f" = {design.sensitivity / scale / parties**0.5:.8f}",
        )
    )


def signed_integers(values: np.ndarray) -> str:
    """Return integers in two columns."""
    return " ".join(f"{value:>20}" for value in map(int, values))


def vectors() -> Iterator[str]:
    """Yield what every data holder adds up, line by line."""
    for answer in ANSWERS:
        for value, row in zip(PRESSURES[answer.holder], answer.rows, strict=True):
            yield f"holder {answer.holder}, record {value:g}   {signed_integers(row)}"
        yield f"holder {answer.holder}, sum          {signed_integers(answer.vector)}"
        yield f"holder {answer.holder}, noise        {signed_integers(answer.noise)}"
        yield f"holder {answer.holder}, noisy sum    {signed_integers(answer.noisy)}"


def shares() -> Iterator[str]:
    """Yield the shares of every data holder, line by line."""
    for answer in ANSWERS:
        for node, share in enumerate(answer.shares):
            yield f"holder {answer.holder} to node {node}   {signed_integers(residues(share))}"
            yield f"  {share.kind.name.lower()} {share.payload.hex()}"


def signed_envelope() -> str:
    """Return the layout of holder 0's envelope for node 0."""
    content, names = (
        ANSWERS[0].envelopes[0],
        (
            (5, "SHOAL"),
            (1, "version"),
            (1, "kind: vector"),
            (1, "node 0"),
            (4, "holder 0"),
            (32, "manifest"),
            (32, "round"),
            (12, "answer id: a hash,"),
            (4, "and the epoch"),
            (32, "sealed box: ephemeral public key,"),
            (len(ANSWERS[0].envelopes[0]) - 188, "and ciphertext"),
            (64, "signature of holder 0"),
        ),
    )
    return laid_out(cut(content, names))


def blocks() -> dict[str, str]:
    """Return every block of the example by its name."""
    roster = ROSTER.encode()
    keys = [f"authority    verify key {bytes(examples.AUTHORITY.verify_key).hex()}"]
    for name in ("analyst", "trainer", "aggregator"):
        keys.append(f"{name:<12} verify key {bytes(signing_key(name).verify_key).hex()}")
    for node, name in enumerate(NODES):
        keys.append(f"{name:<12} verify key {bytes(signing_key(name).verify_key).hex()}")
        keys.append(f"             box key    {examples.box_key(node).hex()}")
    for holder in ASKED:
        keys.append(f"holder {holder}     verify key {bytes(holder_key(holder).verify_key).hex()}")
    parts = [("SHOALROSTER", roster[:11]), ("version", roster[11:12])]
    parts += [("3 data holders", roster[12:16]), ("3 ranges", roster[16:20])]
    for holder in ASKED:
        parts.append((f"key of holder {holder}", roster[20 + 32 * holder : 52 + 32 * holder]))
    for holder in ASKED:
        start = 116 + 8 * holder
        slots = len(PRESSURES[holder])
        what = f"range: holder {holder}, number of slots {slots}"
        parts.append((what, roster[start : start + 8]))
    context = ANSWERS[0].envelopes[0][:92]
    cohort = [("shoal/v1/cohort, line feed", b"shoal/v1/cohort\n")]
    cohort.append(("round", bytes.fromhex(SPEC.digest)))
    for place, holder in enumerate(COHORT.holders):
        cohort.append((f"holder {holder}", holder.to_bytes(4, "little")))
        cohort.append(("its tag", COHORT.tags[4 * place : 4 * place + 4]))
    records = np.sum([ANSWERS[holder].vector for holder in COHORT.holders], axis=0)
    noise = np.sum([ANSWERS[holder].noise for holder in COHORT.holders], axis=0)
    total = from_ring(TOTAL)
    centre, scale = SPEC.query.columns[0].centre, SPEC.query.columns[0].scale
    posterior = TASK.posterior_from(ReleasedSum.of(SPEC, RESULT))
    return {
        "keys": "\n".join(keys),
        "roster": laid_out(parts) + f"\n\ndigest {ROSTER.digest}",
        "manifest": shown(MANIFEST),
        "request": shown(REQUEST),
        "spec": shown(SPEC),
        "population": bitmap(SPEC.population, RUNS),
        "price": price(),
        "vectors": "\n".join(vectors()),
        "shares": "\n".join(shares()),
        "context": "\n".join(in_lines(context)),
        "envelope": signed_envelope(),
        "envelopes": "\n".join(
            f"{answer.holder} to {node}   {len(each)} bytes   {envelope_digest(each).hex()}"
            for answer in ANSWERS
            for node, each in enumerate(answer.envelopes)
        ),
        "holdings": "\n\n".join(map(shown, (HOLDINGS[0], HOLDINGS[2]))),
        "missing": bitmap(HOLDINGS[2].missing, ARRAY),
        "cohort": laid_out(cohort) + f"\n\ndigest {NAMED['cohort']}",
        "vote": f"{whole(VOTES[0], NODES[0])}\n\ndigest {VOTES[0].digest}",
        "sums": "\n".join(
            f"node {node}   {signed_integers(each)}\n         {each.astype('<u8').tobytes().hex()}"
            for node, each in enumerate(SUMS)
        ),
        "partial-sum": shown(PARTIAL_SUMS[0]),
        "journal": "\n".join(JOURNALS[NODES[0]].lines),
        "result": shown(RESULT),
        "total": "\n".join(
            f"{what:<32}{signed_integers(values)}"
            for what, values in (
                ("total", total),
                ("sum of the four records", records),
                ("sum of the noise", noise),
            )
        ),
        "mean": (
            f"naive      {centre:g} + {scale:g} * {total[0]} / {total[1]}"
            f" = {centre + scale * total[0] / total[1]:.1f}\n"
            f"prior      mean {centre:.1f}, standard deviation {scale:.1f}\n"
            f"posterior  mean {posterior.mean[0]:.1f}, standard deviation {posterior.sd[0]:.1f}"
        ),
    }


def filled(page: str) -> str:
    """Return the page with the present content in every block that it marks."""
    content = blocks()
    return MARK.sub(lambda found: f"{found[1]}{content[found[2]]}\n{found[4]}", page)


def main() -> None:
    """Print the example, or write it into the page."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(filled(PAGE.read_text()))
        return
    for name, content in blocks().items():
        print(f"--- {name}\n{content}\n")


if __name__ == "__main__":
    main()
