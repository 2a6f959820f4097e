"""How large a release certificate is, and how long it takes to check it offline.

    python -m bench.certificates [--repeats 20]

A made-up job of one round, 3 Compute nodes, additive sharing, 10,000 clients in the population of
whom 9,900 are in the cohort, for d = 66 and d = 10,011. Medians, in one thread.
"""

import hashlib
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
from nacl.public import PrivateKey
from nacl.signing import SigningKey, VerifyKey
from pyroaring import BitMap

from bench.command import options
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import CertifiedRound, ReleaseCertificate
from shoal_protocol.jobs.job_request import PrivacyDemand
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import GENESIS, Link
from shoal_protocol.queries import SecondMomentMatrix
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.attestations import Charge, PartialSum, PartialSumReference, Result
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.sharing.shares import to_ring
from shoal_protocol.trust.manifest import (
    AUTHORITY_NAME,
    ComputeParty,
    Consortium,
    ListedParty,
    Manifest,
    ServiceParty,
)
from shoal_protocol.trust.policy import Policy
from shoal_protocol.trust.roster import RosterReference
from shoal_protocol.trust.roster_changes import roster_of
from shoal_protocol.wire.documents import Document, Signed, sign
from shoal_protocol.wire.vectors import encode_uint64
from shoal_studies.catalogue.linear_regression import (
    LinearRegressionPosterior,
    LinearRegressionTask,
)
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.study_request import StudyRequest

CLIENTS, COHORT, NODES = 10_000, 9_900, 3
COLUMNS: Final = (11, 141)  # of p = 11 and 141 columns: d = p (p + 1) / 2 = 66 and 10,011
NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)


PLACE: Final = Link(epoch=f"1-{'0' * 32}", number=2, previous=GENESIS)


def key_of(name: str) -> SigningKey:
    """Return a party's key, the same every time."""
    return SigningKey(hashlib.sha256(name.encode()).digest())


def signed(name: str, body: Document) -> Signed[Any]:
    """Return `body` as that party signs it."""
    return sign(body, name, key_of(name))


def service(name: str) -> dict[str, Any]:
    """Return the fields of a service in the manifest."""
    return {
        "name": name,
        "operator": f"operator of {name}",
        "url": f"https://{name}.example:8443",
        "verify_key": bytes(key_of(name).verify_key).hex(),
        "certificate": f"-----BEGIN CERTIFICATE-----\n{'A' * 600}\n-----END CERTIFICATE-----\n",
    }


def consortium() -> Consortium:
    """Return a consortium with all the clients on its roster."""
    roster = roster_of(
        (VerifyKey(hashlib.sha256(b"%d" % client).digest()), 1) for client in range(CLIENTS)
    )
    nodes = [service(f"compute-{node}") for node in range(NODES)]
    manifest = Manifest(
        consortium="bench",
        sequence=1,
        previous=None,
        authority=bytes(key_of(AUTHORITY_NAME).verify_key).hex(),
        compute_nodes=tuple(
            ComputeParty(**each, box_key=bytes(PrivateKey.generate().public_key).hex())
            for each in nodes
        ),
        aggregator=ServiceParty(**service("aggregator")),
        trainer=ServiceParty(**service("trainer")),
        analysts=(
            ListedParty(
                name="analyst",
                operator="operator of analyst",
                verify_key=bytes(key_of("analyst").verify_key).hex(),
            ),
        ),
        roster=RosterReference.of(roster),
        policy=Policy(
            minimum_cohort=1000,
            minimum_colluders=10,
            colluding_holders=0,
            minimum_holders=1,
            maximum_epsilon=4.0,
            delta=1e-6,
            mechanisms=("discrete_gaussian",),
            queries=("second_moment_matrix",),
            maximum_round_seconds=3600,
        ),
    )
    encoded = signed(AUTHORITY_NAME, manifest).encode()
    return Consortium.pinned(encoded, roster.encode(), digest=manifest.digest)


def certificate(of: Consortium, width: int) -> bytes:
    """Return a certificate of a job over `width` columns."""
    bounds = [ColumnBounds(name=f"x{column}", lower=-1.0, upper=1.0) for column in range(width)]
    task = LinearRegressionTask(
        features=tuple(bounds[1:]), target=bounds[0], method="plain", intercept=0.0, radius=1.0
    )
    demand = PrivacyDemand(epsilon=1.0, delta=1e-6, dropouts=200, colluders=100)
    request = StudyRequest(
        manifest=of.digest,
        nonce="0" * 32,
        analyst="analyst",
        task=task,
        terms=task.terms(least=CLIENTS, most=CLIENTS),
        privacy=demand,
        sharing=ADDITIVE,
        minimum_population=CLIENTS,
        maximum_population=CLIENTS,
        join_deadline=NOW,
        round_seconds=60,
        grace_seconds=60,
    )
    spec = make_spec(
        manifest=of,
        job=request.digest,
        number=0,
        query=SecondMomentMatrix(
            columns=tuple(each.column() for each in (*task.features, task.target)),
            intercept=0.0,
            radius=1.0,
            grid_bits=12,
            records_per_client=1,
        ),
        mechanism=demand.mechanism,
        cost=demand.cost,
        population=BitMap(range(CLIENTS)),
        dropouts=demand.dropouts,
        colluders=demand.colluders,
        opened_at=NOW,
        deadline=NOW + timedelta(seconds=60),
        give_up_at=NOW + timedelta(seconds=120),
        sharing=ADDITIVE,
    )
    generator = np.random.default_rng(1)
    total = generator.integers(-(2**30), 2**30, spec.dimension)
    vectors = [generator.integers(0, 2**64, spec.dimension, np.uint64) for _ in range(1, NODES)]
    vectors.append(to_ring(total) - np.sum(vectors, axis=0, dtype=np.uint64))
    cohort: dict[str, Any] = {"manifest": of.digest, "round": spec.digest, "cohort": "1" * 64}
    sums = [
        signed(
            node,
            PartialSum(
                node=node,
                cohort_size=COHORT,
                values=encode_uint64(vector),
                charge=Charge(
                    entry=PLACE.model_copy(update={"number": 1}), salt="0" * 32, job_rounds=1
                ),
                **cohort,
                entry=PLACE,
            ),
        )
        for node, vector in zip(spec.compute_nodes, vectors, strict=True)
    ]
    result = Result(
        cohort_size=COHORT,
        values=encode_uint64(to_ring(total)),
        partial_sums=tuple(
            PartialSumReference(node=each.signer, digest=each.digest) for each in sums
        ),
        **cohort,
        entry=PLACE,
    )
    size = 1 + len(task.features)
    certified = CertifiedRound(
        spec=signed("trainer", spec),
        result=signed("aggregator", result),
        partial_sums=tuple(sums),
    )
    report = PosteriorReport.of(
        request,
        [certified],
        [],
        population=BitMap(range(CLIENTS)),
        posterior=LinearRegressionPosterior(
            names=("intercept", *(each.name for each in task.features)),
            target=task.target.name,
            coefficients=tuple(generator.normal(size=size).tolist()),
            covariance=tuple(tuple(row) for row in generator.normal(size=(size, size)).tolist()),
            residual_sd=1.0,
            records=COHORT,
            prior_mean=(0.0,) * size,
            prior_sd=(1.0,) * size,
        ),
        entry=PLACE,
    )
    body = ReleaseCertificate.of(
        signed("analyst", request),
        [certified],
        [],
        [
            signed(
                node,
                JobTotal(
                    manifest=of.digest,
                    entry=PLACE.model_copy(update={"number": 3}),
                    job=request.digest,
                    node=node,
                    rounds=(spec.digest,),
                    report=report.digest,
                ),
            )
            for node in spec.compute_nodes
        ],
        signed("trainer", report),
        population=BitMap(range(CLIENTS)),
        version=lambda _: of,
    )
    return body.encode()


def main() -> None:
    """Measure and print."""
    repeats = options(__doc__, repeats=20).repeats
    trusted = consortium()
    manifest = trusted.signed_manifest.encode()
    for width in COLUMNS:
        encoded, times = certificate(trusted, width), []
        for _ in range(repeats):
            begun = time.perf_counter()
            verify_certificate(encoded, manifest)
            times.append(time.perf_counter() - begun)
        print(
            f"d = {width * (width + 1) // 2:,}: {len(encoded):,} bytes, checked in "
            f"{statistics.median(times) * 1e3:.0f} ms"
        )


if __name__ == "__main__":
    main()
