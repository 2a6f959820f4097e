"""A made-up consortium with one of every document; all keys derive from labels, so all is fixed."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import numpy as np
from nacl import bindings
from nacl.signing import SigningKey
from pyroaring import BitMap

from shoal_protocol.certificates.release_certificate import CertifiedRound, ReleaseCertificate
from shoal_protocol.jobs.charges import Charges, ChargesQuery, RoundCharged
from shoal_protocol.jobs.declarations import HolderDeclaration, HolderRules
from shoal_protocol.jobs.job_request import PrivacyDemand
from shoal_protocol.jobs.membership import (
    HolderQuery,
    JobWithdrawal,
    Membership,
    approval_of,
)
from shoal_protocol.jobs.totals import JobEnd, JobTotal
from shoal_protocol.journal import GENESIS, EntryPlace, Link
from shoal_protocol.keeping import JournalHead, KeptHeads, Loss
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.queries import (
    Column,
    NoiseBlock,
    NoiseDesign,
    SecondMomentMatrix,
    SecondMoments,
)
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.models.numpyro_models import Latent
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    Charge,
    Holdings,
    PartialSum,
    PartialSumReference,
    Result,
    StoredAnswers,
    Vote,
    cohort_digest,
)
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import Header, seal
from shoal_protocol.sharing.schemes import AdditiveSharing, ThresholdSharing
from shoal_protocol.sharing.shares import RandomBytes, to_ring
from shoal_protocol.trust.manifest import (
    AUTHORITY_NAME,
    ComputeParty,
    Consortium,
    ListedParty,
    Manifest,
    ServiceParty,
)
from shoal_protocol.trust.policy import Policy
from shoal_protocol.trust.roster import Roster, RosterReference
from shoal_protocol.trust.roster_changes import roster_of, with_revoked
from shoal_protocol.trust.succession import ManifestStatement
from shoal_protocol.wire.documents import Document, Role, Signed, sign
from shoal_protocol.wire.encoding import encode_clients
from shoal_protocol.wire.vectors import encode_uint64
from shoal_studies.catalogue.linear_regression import (
    LinearRegressionPosterior,
    LinearRegressionTask,
)
from shoal_studies.catalogue.variational.posterior import Convergence, VariationalPosterior, packed
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.study_request import JobCheck, JobsQuery, StudyRequest
from tests.world.adding import added
from tests.world.clock import NOW

NODES = 3
CLIENTS = 20
REVOKED = 19
OPENED_AT = NOW
SHARING = AdditiveSharing()


def seed(label: str) -> bytes:
    """Return the 32 bytes that all examples draw for `label`."""
    return hashlib.sha256(b"shoal example: " + label.encode()).digest()


def signing_key(name: str) -> SigningKey:
    return SigningKey(seed(f"signing key of {name}"))


AUTHORITY = signing_key(AUTHORITY_NAME)


def client_key(client: int) -> SigningKey:
    return signing_key(f"client {client}")


def box_private_key(node: int) -> bytes:
    return seed(f"box key of compute-{node}")


def box_key(node: int) -> bytes:
    return bindings.crypto_scalarmult_base(box_private_key(node))


def random_bytes(label: str) -> RandomBytes:
    """Return a generator of fixed bytes: for vectors and for tests that must repeat."""
    draws = iter(range(2**32))
    return lambda size: hashlib.shake_256(seed(f"{label}, draw {next(draws)}")).digest(size)


def service(role: str) -> dict[str, str]:
    return {
        "name": role,
        "operator": f"Operator of {role}",
        "url": f"https://{role}.example:8443",
        "verify_key": bytes(signing_key(role).verify_key).hex(),
        "certificate": "-----BEGIN CERTIFICATE-----\nZXhhbXBsZQ==\n-----END CERTIFICATE-----\n",
    }


def roster(clients: int = CLIENTS, revoked: tuple[int, ...] = (REVOKED,)) -> Roster:
    """Return the roster of data holders with one slot each."""
    enrolled = roster_of((client_key(client).verify_key, 1) for client in range(clients))
    return with_revoked(enrolled, revoked)


POLICY = Policy(
    minimum_cohort=8,
    minimum_colluders=2,
    colluding_holders=0,
    minimum_holders=1,
    maximum_epsilon=4.0,
    delta=1e-6,
    mechanisms=("discrete_gaussian",),
    queries=("second_moments", "second_moment_matrix"),
    maximum_round_seconds=3600,
)


def manifest(*, nodes: int = NODES, of: Roster | None = None, **changes: Any) -> Manifest:
    """Return the first version of the manifest, with `changes` to its fields."""
    of = of or roster()
    fields: dict[str, Any] = {
        "consortium": "example",
        "sequence": 1,
        "previous": None,
        "authority": bytes(AUTHORITY.verify_key).hex(),
        "compute_nodes": tuple(
            ComputeParty(**service(f"compute-{node}"), box_key=box_key(node).hex())
            for node in range(nodes)
        ),
        "aggregator": ServiceParty(**service("aggregator")),
        "trainer": ServiceParty(**service("trainer")),
        "analysts": (
            ListedParty(
                name="analyst",
                operator="Operator of analyst",
                verify_key=bytes(signing_key("analyst").verify_key).hex(),
            ),
        ),
        "roster": RosterReference.of(of),
        "policy": POLICY,
    }
    return Manifest(**(fields | changes))


def one_block(sensitivity: float) -> NoiseDesign:
    """Return a design of one coordinate."""
    block = NoiseBlock(coordinates=1, relative_scale=1.0)
    return NoiseDesign(sensitivity=sensitivity, blocks=(block,))


def consortium(*, nodes: int = NODES, of: Roster | None = None, **changes: Any) -> Consortium:
    """Return the consortium of `manifest`, signed by its authority."""
    of = of or roster()
    body = manifest(nodes=nodes, of=of, **changes)
    signed = sign(body, AUTHORITY_NAME, AUTHORITY)
    return Consortium.pinned(signed.encode(), of.encode(), digest=body.digest)


CONSORTIUM = consortium()
TASK = LinearRegressionTask(
    features=(ColumnBounds(name="age", lower=0.0, upper=120.0),),
    target=ColumnBounds(name="pressure", lower=60.0, upper=200.0),
    method="ball_projection",
    radius=None,
    intercept=0.25,
    prior_sd=0.5,
    grid_bits=12,
    records_per_client=2,
)
JOB = StudyRequest(
    manifest=CONSORTIUM.digest,
    nonce=seed("nonce")[:16].hex(),
    analyst="analyst",
    task=TASK,
    terms=TASK.terms(least=12, most=20),
    privacy=PrivacyDemand(epsilon=2.0, delta=1e-6, dropouts=2, colluders=3),
    sharing=SHARING,
    minimum_population=12,
    maximum_population=20,
    join_deadline=OPENED_AT,
    round_seconds=60,
    grace_seconds=30,
)


def asking(request: StudyRequest = JOB, **changes: Any) -> StudyRequest:
    """Return the request with changes, and the terms that follow from them."""
    made = request.model_copy(update=changes)
    terms = made.task.terms(least=made.minimum_population, most=made.maximum_population)
    return made.model_copy(update={"terms": terms})


MOMENTS = SecondMoments(
    columns=tuple(
        Column(name=column.name, centre=column.centre, scale=column.half_range)
        for column in TASK.columns
    ),
    intercept=0.25,
    radius=None,
    grid_bits=12,
    records_per_client=2,
)
MATRIX = SecondMomentMatrix(
    columns=MOMENTS.columns, intercept=0.25, radius=1.25, grid_bits=12, records_per_client=2
)
POPULATION = BitMap(range(12))
COHORT = BitMap(range(11))


def spec(*, mu: float = 0.25, **changes: Any) -> RoundSpec:
    """Return a valid round spec, made from these arguments of `make_spec` with `changes`."""
    arguments: dict[str, Any] = {
        "manifest": CONSORTIUM,
        "job": JOB.digest,
        "number": 0,
        "query": MATRIX,
        "mechanism": "discrete_gaussian",
        "cost": Cost.gaussian(mu),
        "population": POPULATION,
        "dropouts": 2,
        "colluders": 3,
        "opened_at": OPENED_AT,
        "deadline": OPENED_AT + timedelta(seconds=60),
        "give_up_at": OPENED_AT + timedelta(seconds=90),
        "sharing": SHARING,
    }
    return make_spec(**(arguments | changes))


SPEC = spec()
THRESHOLD = ThresholdSharing(threshold=2)
THRESHOLD_CONSORTIUM = consortium(policy=POLICY.model_copy(update={"minimum_threshold": 2}))
THRESHOLD_JOB = JOB.model_copy(
    update={"manifest": THRESHOLD_CONSORTIUM.digest, "sharing": THRESHOLD}
)
THRESHOLD_SPEC = spec(manifest=THRESHOLD_CONSORTIUM, job=THRESHOLD_JOB.digest, sharing=THRESHOLD)
LAPLACE_CONSORTIUM = consortium(
    policy=POLICY.model_copy(update={"mechanisms": ("discrete_gaussian", "discrete_laplace")})
)
LAPLACE_SPEC = spec(
    manifest=LAPLACE_CONSORTIUM, mechanism="discrete_laplace", cost=Cost.pure(epsilon=1.5)
)
DIMENSION = SPEC.dimension
PLACE = Link(epoch=f"1-{'0' * 32}", number=100, previous="1" * 64)
_BOUND = {"manifest": CONSORTIUM.digest, "round": SPEC.digest, "entry": PLACE}


def contribution(client: int) -> np.ndarray:
    """Return a made-up client's vector with made-up noise, shape (DIMENSION,)."""
    return np.arange(DIMENSION, dtype=np.int64) * 1000 - 7 * client


def answer_id(client: int, attempt: str = "first") -> bytes:
    """Return the id of a made-up client's answer; another `attempt` is another answer."""
    return seed(f"{attempt} answer of client {client}")[:16]


def held(clients: Iterable[int], attempt: str = "first") -> StoredAnswers:
    """Return what a node holds that has the answers of these clients."""
    return StoredAnswers.of((client, answer_id(client, attempt)) for client in sorted(clients))


_COHORT = {"cohort": cohort_digest(SPEC.digest, held(COHORT)), "cohort_size": len(COHORT)}


def header(client: int, node: int) -> Header:
    return Header(
        kind=SHARING.kind_for(holder=client, node=node, nodes=NODES),
        node=node,
        holder=client,
        manifest=CONSORTIUM.digest,
        round_id=SPEC.digest,
        answer=answer_id(client),
    )


def envelopes(client: int) -> list[bytes]:
    """Return a client's envelopes, one for each node."""
    shares = SHARING.split(
        to_ring(contribution(client)),
        holder=client,
        nodes=NODES,
        random_bytes=random_bytes(f"seeds of client {client}"),
    )
    return [
        seal(
            share,
            header(client, node),
            box_key=box_key(node),
            key=client_key(client),
            random_bytes=random_bytes(f"ephemeral key of client {client} for {node}"),
        )
        for node, share in enumerate(shares)
    ]


def charge(spec: RoundSpec, node: str, **place: Any) -> Charge:
    """Return an entry by which a node charges a round: the first of its journal, and so on."""
    before = PLACE.previous if spec.number else GENESIS
    return Charge(
        entry=PLACE.model_copy(update={"number": 1 + spec.number, "previous": before} | place),
        salt=random_bytes(f"salt of {node}")(16).hex(),
        job_rounds=spec.number + 1,
    )


def partial_sum(node: int) -> PartialSum:
    shares = [
        SHARING.split(
            to_ring(contribution(client)),
            holder=client,
            nodes=NODES,
            random_bytes=random_bytes(f"seeds of client {client}"),
        )[node]
        for client in COHORT
    ]
    values = encode_uint64(added(SHARING, shares, DIMENSION))
    name = f"compute-{node}"
    return PartialSum(node=name, values=values, charge=charge(SPEC, name), **_COHORT, **_BOUND)


TOTAL = np.sum([contribution(client) for client in COHORT], axis=0)
RESULT = Result(
    values=encode_uint64(to_ring(TOTAL)),
    partial_sums=tuple(
        PartialSumReference(node=f"compute-{node}", digest=partial_sum(node).digest)
        for node in range(NODES)
    ),
    **_COHORT,
    **_BOUND,
)
POSTERIOR = LinearRegressionPosterior(
    names=("intercept", "age"),
    target="pressure",
    coefficients=(91.5, 0.75),
    covariance=((4.0, -0.0625), (-0.0625, 0.001)),
    residual_sd=12.5,
    records=11,
    prior_mean=(0.0, 0.0),
    prior_sd=(1000.0, 100.0),
)


def named(name: str, body: Document) -> Signed[Any]:
    """Sign `body` as the party of that name; data holders and clients as the one it speaks of."""
    index = getattr(body, name, None) if name in ("client", "holder") else None
    key = signing_key(name) if index is None else client_key(index)
    return sign(body, name, key)


CERTIFIED_ROUND = CertifiedRound(
    spec=named("trainer", SPEC),
    result=named("aggregator", RESULT),
    partial_sums=tuple(named(f"compute-{node}", partial_sum(node)) for node in range(NODES)),
)
REPORT = PosteriorReport.of(
    JOB, [CERTIFIED_ROUND], [], population=POPULATION, posterior=POSTERIOR, entry=PLACE
)
CORRELATED_POSTERIOR = VariationalPosterior(
    names=("intercept", "age"),
    columns=("age", "pressure"),
    latents=(Latent(name="intercept"), Latent(name="age")),
    location=(-0.5, 1.25),
    scale=(0.25, 0.375),
    prior_sd=(20.0, 3.0),
    correlation=packed(np.array([[1.0, 0.0], [-0.6, 0.8]])),
    convergence=Convergence(
        rounds=150,
        slopes=(-0.5, 1.75),
        distances=(0.0, 0.125),
        noise_shares=(0.75, 0.5),
        scatters=(0.25, 0.125),
        signals=(7.5, -0.25),
        may_clip=True,
    ),
    records=11,
)
CORRELATED_REPORT = REPORT.model_copy(update={"posterior": CORRELATED_POSTERIOR})
CHARGES = Charges(
    manifest=CONSORTIUM.digest,
    node="compute-1",
    nonce="0a" * 16,
    holder=3,
    after=0,
    through=2,
    head=5,
    rounds=(
        RoundCharged(
            entry=2,
            round=SPEC.digest,
            job=SPEC.job,
            number=SPEC.number,
            mu=SPEC.mu,
            epsilon=SPEC.epsilon,
            clients=encode_clients((3,)),
        ),
    ),
)
LINK = Link(epoch=f"1-{'5a' * 16}", number=1, previous=GENESIS)
TOTALS = [
    named(
        node,
        JobTotal(
            manifest=CONSORTIUM.digest,
            entry=LINK,
            job=JOB.digest,
            node=node,
            rounds=(SPEC.digest,),
            report=REPORT.digest,
        ),
    )
    for node in SPEC.compute_nodes
]
CERTIFICATE = ReleaseCertificate.of(
    named("analyst", JOB),
    [CERTIFIED_ROUND],
    [],
    TOTALS,
    named("trainer", REPORT),
    population=POPULATION,
    version={CONSORTIUM.digest: CONSORTIUM}.__getitem__,
)
JOURNAL_HEAD = named(
    "compute-1",
    JournalHead(
        service="compute-1",
        epoch=LINK.epoch,
        number=7,
        hash=seed("a lost entry").hex(),
        sequence=3,
    ),
)
APPROVAL = approval_of(JOB, holder=3, owner="alice", decision="approve", now=OPENED_AT)
DOCUMENTS: Mapping[str, Signed[Any]] = {
    signed.body.kind: signed
    for signed in (
        CONSORTIUM.signed_manifest,
        named("analyst", JOB),
        named(Role.HOLDER, HolderQuery(manifest=CONSORTIUM.digest, holder=3, at=OPENED_AT)),
        named(
            Role.HOLDER,
            Membership(manifest=CONSORTIUM.digest, job=JOB.digest, holder=3, state="joined"),
        ),
        named(
            Role.HOLDER,
            HolderDeclaration(
                manifest=CONSORTIUM.digest,
                holder=3,
                declared_at=OPENED_AT,
                variables=("age", "pressure"),
                rules=HolderRules(
                    analysts=("analyst",),
                    queries=("second_moments",),
                    columns=("age", "pressure"),
                    delta=1e-6,
                    minimum_population=10,
                    minimum_colluders=2,
                ),
            ),
        ),
        named("alice", APPROVAL),
        named("analyst", JobCheck(manifest=CONSORTIUM.digest, analyst="analyst", request=JOB)),
        named("analyst", JobsQuery(manifest=CONSORTIUM.digest, analyst="analyst", at=OPENED_AT)),
        named(
            Role.HOLDER,
            ChargesQuery(
                manifest=CONSORTIUM.digest,
                holder=3,
                node="compute-0",
                epoch=1,
                instance="0b" * 16,
                nonce="0a" * 16,
                at=OPENED_AT,
            ),
        ),
        named("compute-1", CHARGES),
        named(
            "analyst",
            JobWithdrawal(manifest=CONSORTIUM.digest, job=JOB.digest, analyst="analyst"),
        ),
        named("trainer", SPEC),
        named(
            "compute-1",
            Holdings.attest(
                held(COHORT),
                POPULATION,
                manifest=CONSORTIUM.digest,
                round_id=SPEC.digest,
                node="compute-1",
                entry=PLACE,
            ),
        ),
        named("compute-1", Vote(node="compute-1", nodes=SPEC.compute_nodes, **_COHORT, **_BOUND)),
        named("compute-1", partial_sum(1)),
        named("aggregator", RESULT),
        named(
            "compute-2",
            Abandonment(
                party="compute-2",
                reason=AbandonmentReason(code="votes_missing", detail="no vote in time"),
                **_BOUND,
            ),
        ),
        named("trainer", REPORT),
        named("trainer", JobEnd(manifest=CONSORTIUM.digest, job=JOB.digest, report=REPORT.digest)),
        TOTALS[1],
        named(
            "compute-1",
            ManifestStatement(
                manifest=CONSORTIUM.digest,
                entry=LINK,
                node="compute-1",
                authority=CONSORTIUM.manifest.identity,
                sequence=2,
                emergency=False,
                following=seed("the next version").hex(),
            ),
        ),
        JOURNAL_HEAD,
        named(
            "trainer",
            KeptHeads(
                keeper="trainer",
                nonce=seed("question")[:16].hex(),
                is_new=False,
                heads=(JOURNAL_HEAD,),
            ),
        ),
        named(
            "compute-1",
            Loss(
                manifest=CONSORTIUM.digest,
                entry=LINK,
                service="compute-1",
                lost=EntryPlace(epoch=LINK.epoch, number=JOURNAL_HEAD.body.number),
                sequence=2,
                at=OPENED_AT,
            ),
        ),
    )
}
