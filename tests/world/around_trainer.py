"""The services around a trainer, played on the world's wire: they add up plain records.

Played, because the trainer's tests are of what an aggregator may say to it that no real one says:
results over other cohorts, partial sums that nobody signed. Whole jobs among real services are in
tests/federation and tests/scenarios.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import numpy as np

from shoal_protocol.jobs.membership import JOINED, Membership
from shoal_protocol.jobs.totals import JobEnd, JobTotal
from shoal_protocol.keeping import HEADS_PATH, HeadsAsked, JournalHead, KeptHeads
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    PartialSum,
    PartialSumReference,
    Result,
    cohort_digest,
)
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.shares import to_ring
from shoal_protocol.trust.manifest import (
    AUTHORITY_NAME,
    Consortium,
    Manifest,
)
from shoal_protocol.trust.roster import Roster, RosterReference
from shoal_protocol.trust.succession import following_version
from shoal_protocol.wire.documents import Signed, decode, sign
from shoal_protocol.wire.vectors import encode_uint64
from shoal_studies.study_request import StudyRequest
from tests.world import examples
from tests.world.examples import PLACE
from tests.world.parties import reachable
from tests.world.wire import Wire

CONSORTIUM = reachable()
SERVICES = ("aggregator", *(f"compute-{node}" for node in range(examples.NODES)))


def job(**changes: Any) -> StudyRequest:
    """Return a job request that may run; `privacy` and the rest as in the examples."""
    fields = examples.JOB.model_dump() | {
        "manifest": CONSORTIUM.digest,
        "join_deadline": examples.OPENED_AT.replace(hour=13),
        "maximum_population": 18,
    }
    return examples.asking(StudyRequest.model_validate(fields | changes))


def signed_job(request: StudyRequest, analyst: str = "analyst") -> bytes:
    return sign(request, analyst, examples.signing_key(analyst)).encode()


def join(job_id: str, client: int, **changes: Any) -> bytes:
    fields = {"manifest": CONSORTIUM.digest, "job": job_id, "holder": client, "state": JOINED}
    body = Membership(**(fields | changes))
    return sign(body, "holder", examples.client_key(client)).encode()


def records_of(clients: int) -> np.ndarray:
    """Return made-up records, shape (clients, 2): pressure rises by half a unit a year."""
    ages = np.linspace(20.0, 90.0, clients)
    return np.column_stack([ages, 100.0 + 0.5 * ages])


def successor(consortium: Consortium, roster: Roster) -> Consortium:
    """Return the next manifest version, with that roster."""
    fields = consortium.manifest.model_dump() | {
        "sequence": consortium.manifest.sequence + 1,
        "previous": consortium.digest,
        "roster": RosterReference.of(roster),
    }
    body = Manifest.model_validate(fields)
    signed = sign(body, AUTHORITY_NAME, examples.AUTHORITY)
    return following_version(consortium, signed.encode(), roster.encode())


Change = Callable[[Any], Any]


class Federation:
    """The nodes and the aggregator, and the wire on which they answer the trainer."""

    def __init__(self) -> None:
        self.wire = Wire(lambda url: url.host.split(".")[0])
        self.wire.played = {name: partial(self._answer, name) for name in SERVICES}
        self.consortium = CONSORTIUM
        self.rounds: dict[str, dict[str, RoundSpec]] = {name: {} for name in SERVICES}
        self.requests: dict[str, list[bytes]] = {name: [] for name in SERVICES}
        self.kept_heads: dict[str, Signed[JournalHead]] = {}
        self.decided = True
        self.abandoned = False
        self.tamper: Change = lambda result: result
        self.partial_sums: Callable[[RoundSpec], list[Signed[Any]]] = plain_sums
        """What is shown, as it is; the result is always the one of `plain_sums`."""
        self.signer = "aggregator"

    def freeze(self, name: str, until: asyncio.Event) -> asyncio.Event:
        """Have a service answer only as a keeper before then; return what is set then."""
        asked = asyncio.Event()

        async def wait(request: httpx.Request) -> None:
            if request.url.path != HEADS_PATH:
                asked.set()
                await until.wait()

        self.wire.scripts[name] = wait
        return asked

    def _answer(self, name: str, request: httpx.Request) -> httpx.Response:
        path = request.url.path.split("/")[2:]
        match request.method, path:
            case "POST", ["rounds"]:
                signed = decode(request.content, RoundSpec)
                self.consortium.verify(signed)
                is_new = signed.digest not in self.rounds[name]
                self.rounds[name][signed.digest] = signed.body
                return httpx.Response(201 if is_new else 200, request=request)
            case "POST", ["journal", "heads"]:
                return httpx.Response(200, content=self.heads(name, request.content))
            case "POST", ["jobs"] if name != "aggregator":
                self.requests[name].append(request.content)
                return httpx.Response(200, json={}, request=request)
            case "POST", ["totals"] if name != "aggregator":
                return httpx.Response(200, content=self.total(name, request.content))
            case "GET", ["rounds", round_id, "outcome"] if name == "aggregator":
                return self._outcome(self.rounds[name][round_id], request)
        return httpx.Response(
            404, json={"type": "urn:shoal:problem:unknown-round"}, request=request
        )

    def heads(self, name: str, content: bytes) -> bytes:
        """Take the trainer's newest head, and return what a service keeps."""
        asked, kept = HeadsAsked.decode(content), self.kept_heads
        if asked.advance is not None:
            kept[name] = asked.advance.head
        heads = (kept[name],) if name in kept else ()
        body = KeptHeads(keeper=name, nonce=asked.nonce, is_new=False, heads=heads)
        return examples.named(name, body).encode()

    def total(self, name: str, content: bytes) -> bytes:
        """Return what a node signs of the rounds that it accepted of a job that is over."""
        end = decode(content, JobEnd)
        self.consortium.verify(end)
        specs = [each for each in self.rounds[name].values() if each.job == end.body.job]
        specs.sort(key=lambda each: each.number)
        charged = tuple(each.digest for each in specs)
        body = JobTotal(
            manifest=end.body.manifest,
            entry=examples.LINK,
            job=end.body.job,
            node=name,
            rounds=charged,
            report=end.body.report,
        )
        return examples.named(name, body).encode()

    def _outcome(self, spec: RoundSpec, request: httpx.Request) -> httpx.Response:
        if not (self.decided or self.abandoned):
            return httpx.Response(202, json={}, request=request)
        shown = [self.abandonment(spec.digest)]
        if not self.abandoned:
            body = self.tamper(plain_result(spec))
            signed = sign(body, self.signer, examples.signing_key(self.signer))
            shown = [each.encode() for each in (signed, *self.partial_sums(spec))]
        content = b'{"documents":[' + b",".join(shown) + b"]}"
        return httpx.Response(200, content=content, request=request)

    def abandonment(self, round_id: str) -> bytes:
        body = Abandonment(
            manifest=CONSORTIUM.digest,
            round=round_id,
            party=self.signer,
            reason=AbandonmentReason(code="cohort_too_small"),
            entry=PLACE,
        )
        return sign(body, self.signer, examples.signing_key(self.signer)).encode()


def plain_total(spec: RoundSpec) -> np.ndarray:
    """Return the sum of a round in which all take part and nobody adds noise, shape (d,)."""
    rows = records_of(spec.population_size)
    return np.asarray(sum(spec.query.encode(row[np.newaxis]) for row in rows))


def plain_sums(spec: RoundSpec) -> list[Signed[Any]]:
    """Return what the Compute nodes sign: blinding, and the last one what takes it off again."""
    blinding = np.arange(spec.dimension, dtype=np.uint64) + np.uint64(2**63)
    *others, last = spec.compute_nodes
    rest = to_ring(plain_total(spec)) - blinding * np.uint64(len(others))
    return [
        signed_sum(spec, node, values=encode_uint64(rest if node == last else blinding))
        for node in spec.compute_nodes
    ]


def signed_sum(spec: RoundSpec, node: str, **changes: Any) -> Signed[Any]:
    """Return a partial sum as that node signs it."""
    cohort = examples.held(spec.clients())
    body = {
        "manifest": spec.manifest,
        "round": spec.digest,
        "node": node,
        "cohort": cohort_digest(spec.digest, cohort),
        "cohort_size": len(cohort.holders),
        "charge": examples.charge(spec, node, number=4 * spec.number + 1),
        "entry": PLACE.model_copy(update={"number": 4 * spec.number + 4}),
    }
    return examples.named(node, PartialSum.model_validate(body | changes))


def plain_result(spec: RoundSpec) -> Result:
    """Return the result of `plain_sums`."""
    cohort = examples.held(spec.clients())
    return Result(
        manifest=spec.manifest,
        round=spec.digest,
        cohort=cohort_digest(spec.digest, cohort),
        cohort_size=len(cohort.holders),
        values=encode_uint64(to_ring(plain_total(spec))),
        partial_sums=tuple(
            PartialSumReference(node=each.body.node, digest=each.digest)
            for each in plain_sums(spec)
        ),
        entry=PLACE,
    )
