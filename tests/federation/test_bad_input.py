"""Specs and bodies that no service may take, sent to each service that is offered such."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from nacl.signing import SigningKey
from pyroaring import BitMap

from shoal_kit.party import load_party
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.privacy.accounting import Cost, price
from shoal_protocol.privacy.mechanisms import DiscreteGaussianNoise
from shoal_protocol.queries import Column, SecondMomentMatrix
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.encoding import encode_clients
from shoal_redteam.requests import request_for
from tests.world.clock import NOW
from tests.world.federation import Federation
from tests.world.trust import SITES, TASK, Trust

CLIENTS = sum(SITES.values())
TAKERS = ("compute-0", "compute-2", "aggregator")


QUERY = SecondMomentMatrix(
    columns=tuple(
        Column(name=each.name, centre=each.centre, scale=each.half_range) for each in TASK.columns
    ),
    intercept=0.25,
    radius=None,
    grid_bits=10,
    records_per_client=1,
)
RULES: dict[str, Any] = {
    "mechanism": "discrete_gaussian",
    "dropouts": 2,
    "colluders": 2,
    "sharing": ADDITIVE,
    "opened_at": NOW,
}


def good_job(trust: Trust) -> JobRequest:
    return request_for(trust.consortium, QUERY, analyst="analyst", nonce="0a" * 16, **RULES)


def good_spec(trust: Trust, **changes: Any) -> RoundSpec:
    arguments: dict[str, Any] = {
        "manifest": trust.consortium,
        "job": good_job(trust).digest,
        "number": 0,
        "query": QUERY,
        "cost": Cost.gaussian(0.3),
        "population": BitMap(range(CLIENTS)),
        "deadline": NOW + timedelta(seconds=40),
        "give_up_at": NOW + timedelta(seconds=80),
    }
    return make_spec(**(arguments | RULES | changes))


def with_noise(spec: RoundSpec, scale: float) -> RoundSpec:
    """Change the noise and declare what it costs, so that nothing else is wrong."""
    noise = DiscreteGaussianNoise(scale=scale)
    cost = price(
        noise,
        sensitivity=spec.design.sensitivity,
        population=spec.population_size,
        dropouts=spec.dropouts,
        colluders=spec.colluders,
    )
    return spec.model_copy(update={"noise": noise, "mu": cost.mu})


def changed(**changes: Any) -> Callable[[RoundSpec], RoundSpec]:
    return lambda spec: spec.model_copy(update=changes)


WRONG: dict[str, Callable[[RoundSpec], RoundSpec]] = {
    "too little noise for the policy": lambda spec: with_noise(spec, spec.noise.scale / 10),
    "too little noise for its price": changed(noise=DiscreteGaussianNoise(scale=1000.0)),
    "one Compute node less": changed(compute_nodes=("compute-0", "compute-1")),
    "nodes in another order": changed(compute_nodes=("compute-1", "compute-0", "compute-2")),
    "too few clients": changed(
        population=encode_clients(BitMap(range(5))), population_size=5, minimum_cohort=3
    ),
    "more clients than named": changed(population_size=CLIENTS + 1),
    "a client nobody enrolled": changed(population=encode_clients(BitMap(range(1, CLIENTS + 1)))),
    "a smaller cohort than its noise is for": changed(minimum_cohort=CLIENTS - 3),
    "another dimension": changed(dimension=5),
    "an end before its beginning": changed(give_up_at=NOW + timedelta(seconds=20)),
    "an expired deadline": changed(
        opened_at=NOW - timedelta(seconds=80), deadline=NOW - timedelta(seconds=40)
    ),
    "more time than the policy gives": changed(give_up_at=NOW + timedelta(days=2)),
}


async def offer(
    federation: Federation, trust: Trust, name: str, spec: RoundSpec, key: SigningKey | None = None
) -> httpx.Response:
    if name.startswith("compute"):
        analyst = load_party(trust.directory / "parties" / "analyst").signing_key
        request = sign(good_job(trust), "analyst", analyst).encode()
        taken = await federation.ask(name, "/v1/jobs", method="POST", content=request)
        assert taken.status_code in (200, 201), taken.text
    key = key or load_party(trust.directory / "parties" / "trainer").signing_key
    content = sign(spec, "trainer", key).encode()
    return await federation.ask(name, "/v1/rounds", method="POST", content=content)


async def test_specs_that_contradict_the_manifest_or_themselves_are_refused_everywhere(
    federation: Federation, trust: Trust
) -> None:
    good = good_spec(trust)
    for what, change in WRONG.items():
        spec = change(good)
        for name in TAKERS:
            answer = await offer(federation, trust, name, spec)
            assert answer.status_code == 422, (what, name, answer.text)
            assert answer.json()["type"] == "urn:shoal:problem:refused-spec", (what, name)
            what_it_shows = "outcome" if name == "aggregator" else "spec"
            unknown = await federation.ask(name, f"/v1/rounds/{spec.digest}/{what_it_shows}")
            assert unknown.status_code == 404, (what, name)
    for name in TAKERS:
        assert (await offer(federation, trust, name, good)).status_code == 201


@pytest.mark.parametrize("name", TAKERS)
async def test_specs_of_a_foreign_trainer_or_consortium_are_refused(
    federation: Federation, trust: Trust, name: str
) -> None:
    stranger = await offer(federation, trust, name, good_spec(trust), SigningKey(bytes(32)))
    foreign = good_spec(trust).model_copy(update={"manifest": "f" * 64})
    elsewhere = await offer(federation, trust, name, foreign)

    assert (stranger.status_code, elsewhere.status_code) == (403, 409)
    assert stranger.json()["type"] == "urn:shoal:problem:bad-signature"
    assert elsewhere.json()["type"] == "urn:shoal:problem:wrong-manifest"
