"""Clients that are none, or more than one: in a round, in a population, on the roster, in a job."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from nacl.signing import SigningKey
from pyroaring import BitMap

from shoal_kit.outcome import CREATED, OK
from shoal_kit.peers.exchange import Reply
from shoal_protocol.jobs.job_request import PrivacyDemand
from shoal_protocol.jobs.membership import JOINED, Membership
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.sharing.received import parse
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Manifest
from shoal_protocol.trust.manifest_bundle import framed
from shoal_protocol.trust.roster import RosterReference
from shoal_protocol.trust.roster_changes import with_enrolled
from shoal_protocol.wire.documents import Role, Signed, sign
from shoal_protocol.wire.encoding import domain, encode_clients
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, RefusedSpec, UnknownHolder
from shoal_protocol.wire.service_errors import NotInPopulation
from shoal_redteam.announcing import announced, is_honest, priced
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.key_substitution import next_manifest
from shoal_redteam.attacks.transplant import transplanted
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.forging import countersigned
from shoal_redteam.played_round import begin, honest_spec
from shoal_redteam.target import DROPOUTS, Target
from shoal_studies.catalogue.linear_regression import LinearRegressionTask, RegressionMethod
from shoal_studies.registry import Task
from shoal_studies.study_request import StudyRequest

COLUMNS: Final = tuple(
    ColumnBounds(name=name, lower=-1.0, upper=1.0) for name in ("first", "second")
)
_JOIN_SECONDS: Final = 20.0


class Sybil(Attack):
    """Somebody takes part as a client that nobody enrolled, or as two."""

    name = "sybil"
    liar = "anybody with keys of his own; the trainer"
    tries = "answers and joins of clients that are not enrolled, forged rosters and populations"
    stopped_by = (
        "unknown-holder, not-in-population, bad-signature, refused-spec, malformed-document"
    )

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Try to get in by the round, by the population and by the roster."""
        played, node = await begin(target), target.nodes[0]
        member, outsider = played.clients[0], target.outsiders[0]
        beyond = len(target.consortium.roster)
        stranger = SigningKey(target.random_bytes(32))
        envelope = played.contribution(member).envelopes[0]
        header = parse(envelope).header
        uploads = {
            "an answer of a data holder beyond the roster": (beyond, stranger, UnknownHolder.code),
            "an answer of an enrolled data holder that is not asked": (
                outsider,
                target.keys.clients[outsider],
                NotInPopulation.code,
            ),
            "one data holder's key under the index of another": (
                target.crew[1],
                target.keys.clients[member],
                BadSignature.code,
            ),
            "a stranger's key under a data holder's index": (member, stranger, BadSignature.code),
        }
        for tried, (client, key, code) in uploads.items():
            forgery = transplanted(envelope, replace(header, holder=target.holder(client)), key)
            answers = {node: await played.upload(0, forgery)}
            check = "the roster and the population decide who may answer, and with which key"
            yield refused(tried, answers, by={code}, check=check)
        await played.answer(played.clients)
        yield seen(
            "the total of that round",
            stopped=await played.released_exactly(played.clients),
            answered=f"{target.aggregator}: the sum of the population's answers",
            check="nobody else's share was stored",
        )
        spec = honest_spec(target)
        crowd = BitMap([*played.clients, beyond])
        yield await announced(
            target,
            "a population with a client that nobody enrolled",
            spec,
            priced(
                spec,
                population=encode_clients(crowd),
                population_size=len(crowd),
                minimum_cohort=len(crowd) - spec.dropouts,
            ),
            by={RefusedSpec.code},
            check="the population must be on the roster",
        )
        yield await announced(
            target,
            "a population that counts a client twice",
            spec,
            priced(
                spec,
                population_size=spec.population_size + 1,
                minimum_cohort=spec.minimum_cohort + 1,
            ),
            by={RefusedSpec.code},
            check="a population is a set, and its size is counted",
        )
        await is_honest(target, spec)
        async for finding in self._rosters(target, stranger):
            yield finding

    async def _rosters(self, target: Target, stranger: SigningKey) -> AsyncIterator[Finding]:
        roster = target.consortium.roster
        longer = with_enrolled(roster, [(stranger.verify_key, 1)])
        named = RosterReference.of(longer)
        await hand_over(target, target.consortium.signed_manifest, longer.encode())
        path = f"/v1/rosters/{roster.digest}"
        shown = [(await target.ask(name, path)).body for name in target.services]
        yield seen(
            "a roster with a Sybil on it, beside the manifest in force",
            stopped=set(shown) == {roster.encode()},
            answered=f"{len(shown)} services: the roster is what it was",
            check="the manifest names its roster by digest",
        )
        forgery = next_manifest(target, roster=named)
        yield refused(
            "a next manifest that names this roster, signed by the trainer as the authority",
            await hand_over(
                target, sign(forgery, AUTHORITY_NAME, target.key(target.trainer)), longer.encode()
            ),
            by={BadSignature.code},
            check="a version must follow by the signature of the pinned authority",
        )
        own_key = bytes(target.keys.clients[target.crew[0]].verify_key)
        twice = longer.encode().replace(bytes(stranger.verify_key), own_key)
        digest = hashlib.sha256(domain("roster") + twice).hexdigest()
        doubled = next_manifest(target, roster=named.model_copy(update={"digest": digest}))
        yield refused(
            "one key under two indices, on a roster that the authority itself signed",
            await hand_over(
                target,
                countersigned(target, sign(doubled, AUTHORITY_NAME, target.keys.authority)),
                twice,
            ),
            by={MalformedDocument.code},
            check="no two data holders of a roster share a key",
        )


class SybilJoin(Attack):
    """Somebody joins a job as a data holder that nobody enrolled, or as two."""

    name = "sybil-join"
    liar = "anybody with keys of his own"
    tries = "joins of data holders that are not enrolled, under another's index, and one join twice"
    stopped_by = "unknown-holder, bad-signature, malformed-document; a data holder is counted once"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Join a job of which nothing comes, for too few join."""
        request = job_request(target)
        submitted = await target.send(target.trainer, "/v1/jobs", request.encode())
        if submitted.is_refusal:
            raise CannotAttack(f"the trainer refuses an honest job: {submitted.reason}")
        other = job_request(target)
        await target.send(target.trainer, "/v1/jobs", other.encode())
        path, keys = f"/v1/jobs/{request.digest}/memberships", target.keys.clients
        member = target.crew[0]
        neighbour = target.crew[1]
        stranger = SigningKey(target.random_bytes(32))
        joins = {
            "a join of a data holder beyond the roster": (
                request,
                len(target.consortium.roster),
                stranger,
                UnknownHolder.code,
            ),
            "one data holder's key under the index of another": (
                request,
                neighbour,
                keys[member],
                BadSignature.code,
            ),
            "a stranger's key under a data holder's index": (
                request,
                neighbour,
                stranger,
                BadSignature.code,
            ),
            "a join of another job": (other, neighbour, keys[neighbour], "malformed-document"),
        }
        for tried, (job, client, key, code) in joins.items():
            body = Membership(
                manifest=target.consortium.digest,
                job=job.digest,
                holder=target.holder(client),
                state=JOINED,
            )
            content = sign(body, Role.HOLDER.value, key).encode()
            answers = {target.trainer: await target.send(target.trainer, path, content)}
            check = "the roster's key of the data holder in the join must have signed it"
            yield refused(tried, answers, by={code}, check=check)
        body = Membership(
            manifest=target.consortium.digest,
            job=request.digest,
            holder=target.holder(member),
            state=JOINED,
        )
        content = sign(body, Role.HOLDER.value, keys[member]).encode()
        statuses = [(await target.send(target.trainer, path, content)).status for _ in range(3)]
        joined = (await target.ask(target.trainer, f"/v1/jobs/{request.digest}")).json()["joined"]
        yield seen(
            "one join three times",
            stopped=statuses == [CREATED, OK, OK] and joined == 1,
            answered=f"{target.trainer}: {joined} client has joined",
            check="a data holder is counted once",
        )


def job_request(
    target: Target,
    *,
    round_seconds: int = 1,
    grace_seconds: int = 1,
    method: RegressionMethod = "plain",
    task: Task | None = None,
    population: int | None = None,
) -> Signed[StudyRequest]:
    """Return a job that the trainer takes; it soon fails unless the whole crew joins.

    It is a linear regression by `method`, or another `task`; `population` clients may join.
    """
    policy, clients = target.consortium.manifest.policy, population or len(target.crew)
    task = task or LinearRegressionTask(features=COLUMNS[:1], target=COLUMNS[1], method=method)
    body = StudyRequest(
        manifest=target.consortium.digest,
        nonce=target.random_bytes(16).hex(),
        analyst=target.analyst,
        task=task,
        terms=task.terms(least=clients, most=clients),
        privacy=PrivacyDemand(
            epsilon=policy.maximum_epsilon / 10,
            delta=policy.delta,
            dropouts=DROPOUTS,
            colluders=policy.minimum_colluders,
        ),
        sharing=ADDITIVE,
        minimum_population=clients,
        maximum_population=clients,
        join_deadline=target.after(_JOIN_SECONDS),
        round_seconds=round_seconds,
        grace_seconds=grace_seconds,
    )
    return target.sign(body, target.analyst)


async def hand_over(target: Target, manifest: Signed[Manifest], roster: bytes) -> dict[str, Reply]:
    """Hand a manifest and a roster to every service, whether they belong together or not."""
    body = framed(manifest.encode(), roster)
    return await target.tell(target.services, "/v1/manifest", body, method="PUT")
