"""A scripted trainer that takes jobs and reports on them, for tests of an analyst's side."""

from collections import Counter
from typing import Any

import httpx

from shoal_protocol.certificates.posterior_report import (
    Participations,
    PosteriorReport,
    PrivacySpent,
)
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.jobs.privacy_breakdown import BreakdownEntry
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.studies.linear_regression import LinearRegressionPosterior
from shoal_protocol.wire.documents import decode, sign
from tests.world.around_holder import PRIVACY, World, problem
from tests.world.examples import signing_key


class ReportingTrainer:
    """A trainer that takes jobs and, when told to, has a report or a failure."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: list[bytes] = []
        self.phase = "joining"
        self.reason = "too few joined"
        self.rounds: list[dict[str, object]] = []
        self.request: bytes | None = None
        self.report: bytes | None = None
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked.append(path)
        if request.method == "POST":
            self.requests.append(request.content)
            signed = decode(request.content, StudyRequest)
            self.world.consortium.verify(signed)
            return httpx.Response(201, json={"job": signed.digest})
        if path.endswith("/request"):
            return httpx.Response(200, content=self.request or self.requests[-1])
        if path.endswith("/certificate"):
            return problem(409, "wrong-phase")
        if not path.endswith("/result"):
            job = path.rpartition("/")[2]
            state: dict[str, object] = {"job": job, "phase": self.phase, "joined": 12, "more": 1}
            phases = Counter(each["phase"] for each in self.rounds)
            state |= {"rounds": self.rounds, "round_counts": phases}
            state |= {"reason": self.reason if self.phase == "failed" else None}
            return httpx.Response(200, json=state)
        if self.phase == "failed":
            return problem(410, "job-failed")
        if self.report is None:
            return httpx.Response(202, json={})
        return httpx.Response(200, content=self.report)

    def finish(self, job: str, *, signer: str = "trainer", **changes: Any) -> PosteriorReport:
        fields: dict[str, Any] = {
            "manifest": self.world.consortium.digest,
            "job": job,
            "rounds": ("1" * 64,),
            "results": ("2" * 64,),
            "lost_rounds": (),
            "population_size": 12,
            "participations": Participations(least=1, most=1),
            "cohort_sizes": (12,),
            "sharing": ADDITIVE,
            "compute_nodes": (3,),
            "partial_sums": (3,),
            "privacy": PrivacySpent(
                epsilon=1.0,
                delta=1e-6,
                mu=PRIVACY.cost.mu,
            ),
            "breakdown": (BreakdownEntry(query="second_moment_matrix", rounds=1, share=1.0),),
            "posterior": LinearRegressionPosterior(
                names=("intercept", "age"),
                target="pressure",
                coefficients=(1.0, 2.0),
                covariance=((1.0, 0.0), (0.0, 1.0)),
                residual_sd=1.0,
                records=12,
            ),
        }
        body = PosteriorReport(**(fields | changes))
        self.report = sign(body, "trainer", signing_key(signer)).encode()
        self.phase = "finished"
        return body
