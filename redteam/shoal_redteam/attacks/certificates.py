"""Certificates of releases that never were, or were otherwise: anybody checks them offline."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

import numpy as np
from nacl.signing import SigningKey

from shoal_kit.outcome import OK
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import (
    ReleaseCertificate,
    read_certificate,
    unpack,
)
from shoal_protocol.jobs.membership import JOINED, Membership
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import AUTHORITY_NAME
from shoal_protocol.wire.documents import Role, Signed, decode, sign
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import ProtocolError, UnknownManifest
from shoal_protocol.wire.service_errors import RefusedCertificate
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from shoal_redteam.announcing import priced
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.key_substitution import with_own_boxes
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.findings import CannotAttack, Finding, refused_codes
from shoal_redteam.forged_certificates import forged_certificate
from shoal_redteam.forging import forged
from shoal_redteam.played_round import PlayedRound
from shoal_redteam.target import Target
from shoal_redteam.victim import PRIVATE_COLUMN
from shoal_studies.catalogue.linear_regression import RegressionMethod

_WAIT_SECONDS: Final = 60.0
_READER: Final = "shoal certificate verify"


class ForgedCertificate(Attack):
    """Somebody shows a certificate that says more, or less, than what happened."""

    name = "forged-certificate"
    liar = "the trainer, or whoever hands a certificate on"
    tries = "a total, price, size, round or charge changed or left out, signed again by all"
    stopped_by = "refused-certificate: what all others signed, and it must all fit; canonical"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Run an honest job, and show its certificate with one thing changed."""
        genuine = await certificate_of_a_job(target)
        manifest = target.consortium.signed_manifest.encode()
        if refusal := read(genuine, manifest):
            raise CannotAttack(f"the honest certificate is refused: {refusal}")
        key, told = target.key(target.trainer), read_certificate(genuine)
        if refusal := read(forged_certificate(target, told), manifest):
            raise CannotAttack(f"an honest certificate that is made anew is refused: {refusal}")

        def changed(change: Callable[[dict[str, Any]], None]) -> bytes:
            body = told.model_dump(mode="json")
            change(body)
            return canonical_json(body)

        def resigned(part: dict[str, Any], name: str, **fields: Any) -> None:
            part["body"] |= fields
            whole = forged(part["body"]["kind"], part["body"], name, target.key(name))
            part.update(whole)

        def first(body: dict[str, Any]) -> dict[str, Any]:
            found: dict[str, Any] = body["rounds"][0]
            return found

        def cheaper(body: dict[str, Any]) -> None:
            privacy = body["report"]["body"]["privacy"]
            resigned(body["report"], target.trainer, privacy=privacy | {"epsilon": 0.0, "mu": 0.0})

        def larger(body: dict[str, Any]) -> None:
            size = body["report"]["body"]["population_size"] * 100
            resigned(body["report"], target.trainer, population_size=size)

        lies: dict[str, bytes] = {
            "a total that is one more, signed by the aggregator": changed(
                lambda body: resigned(
                    first(body)["result"],
                    target.aggregator,
                    values=_one_more(first(body)["result"]["body"]["values"]),
                )
            ),
            "a lower price in the report": changed(cheaper),
            "a larger population in the report": changed(larger),
            "a Compute node's sum left out": changed(
                lambda body: first(body)["partial_sums"].pop()
            ),
            "a Compute node's sum in another order": changed(
                lambda body: first(body)["partial_sums"].reverse()
            ),
            "half the noise in the spec": changed(
                lambda body: resigned(
                    first(body)["spec"],
                    target.trainer,
                    noise=first(body)["spec"]["body"]["noise"]
                    | {"scale": first(body)["spec"]["body"]["noise"]["scale"] / 2},
                )
            ),
            "a request that the trainer signed in the analyst's name": changed(
                lambda body: body["request"].update(
                    signature=forged("job_request", body["request"]["body"], "", key)["signature"]
                )
            ),
            "white space in it": genuine.replace(b",", b", ", 1),
            "a digit of a signature changed": _one_digit_changed(genuine),
            "a second report that the trainer signed": changed(
                lambda body: resigned(
                    body["report"], target.trainer, record=target.random_bytes(32).hex()
                )
            ),
        }
        for tried, lie in (lies | forgeries(target, told)).items():
            yield _judged(tried, read(lie, manifest))
        own = SigningKey(target.random_bytes(32))
        other = sign(with_own_boxes(target), AUTHORITY_NAME, own).encode()
        yield _judged("the genuine one, under another manifest", read(genuine, other))


def read(certificate: bytes, manifest: bytes) -> ProtocolError | None:
    """Return why a certificate is refused, None if it holds."""
    try:
        verify_certificate(certificate, manifest)
    except ProtocolError as error:
        return error
    return None


def forgeries(target: Target, told: ReleaseCertificate) -> dict[str, bytes]:
    """Return certificates that everybody signed, of rounds and a job that do not fit together."""
    request, last = told.request.body, len(told.rounds) - 1
    spec = told.rounds[last].spec.body
    query, policy = spec.query, target.consortium.manifest.policy
    columns = [column.model_copy(update={"name": PRIVATE_COLUMN}) for column in query.columns[:1]]
    other = query.model_copy(update={"columns": (*columns, *query.columns[1:])})
    half = request.privacy.model_copy(update={"epsilon": request.privacy.epsilon / 2})

    def of_round(**changes: Any) -> bytes:
        return forged_certificate(target, told, specs={last: changes})

    def charged(node: str, **changes: Any) -> bytes:
        return forged_certificate(
            target,
            told,
            charges=lambda number, name, charge: charge.model_copy(
                update=changes if (number, name) == (last, node) else {}
            ),
        )

    lies = {
        "a round with a column that the job did not name": of_round(query=other),
        "a round of another job": of_round(job=target.random_bytes(32).hex()),
        "a round out of turn": of_round(number=last + 1),
        "a round with other tolerances than the job": of_round(
            **priced(spec, colluders=spec.colluders + 1)
        ),
        "rounds that cost twice what the job may": forged_certificate(
            target, told, request={"privacy": half}
        ),
        "a job that may last longer than the policy allows": forged_certificate(
            target, told, request={"round_seconds": policy.maximum_round_seconds + 1}
        ),
    }
    privacy = told.report.body.privacy.model_copy(update={"epsilon": 0.0, "mu": 0.0})
    lies |= {
        f"another {name} in the report, which all nodes signed": forged_certificate(
            target, told, report={name: value}
        )
        for name, value in (
            ("privacy", privacy),
            ("population_size", told.report.body.population_size * 100),
            ("record", target.random_bytes(32).hex()),
        )
    }
    node = target.nodes[0]

    def totalled(change: Callable[[JobTotal], JobTotal | None]) -> bytes:
        return forged_certificate(
            target, told, totals=lambda total: change(total) if total.node == node else total
        )

    lies |= {
        f"a round that {node} charged left out": totalled(
            lambda total: total.model_copy(
                update={"rounds": (*total.rounds, target.random_bytes(32).hex())}
            )
        ),
        f"{node}'s total left out": totalled(lambda total: None),
        f"{node}'s total of fewer rounds": totalled(
            lambda total: total.model_copy(update={"rounds": total.rounds[:-1]})
        ),
        f"{node}'s total of another report": totalled(
            lambda total: total.model_copy(update={"report": target.random_bytes(32).hex()})
        ),
        f"{node}'s total of another job": totalled(
            lambda total: total.model_copy(update={"job": target.random_bytes(32).hex()})
        ),
    }
    sums = [signed.body for each in told.rounds for signed in each.partial_sums]
    own = [each for each in sums if each.node == node]
    lies |= {
        f"a round of the job too many in {node}'s charge": charged(
            node, job_rounds=own[-1].charge.job_rounds + 1
        ),
        f"{node}'s charge behind its sum": charged(node, entry=own[-1].entry),
    }
    if last:
        lies[f"{node}'s journal written anew between two rounds"] = charged(
            node, entry=own[0].entry
        )
    return lies


def _judged(tried: str, refusal: ProtocolError | None) -> Finding:
    outcomes = {_READER: refusal.code if refusal else ""}
    codes = {RefusedCertificate.code, UnknownManifest.code}
    return refused_codes(tried, outcomes, by=codes, check=str(refusal))


def _one_more(values: str) -> str:
    total = decode_uint64(values)
    total[0] += np.uint64(1)
    return encode_uint64(total)


def _one_digit_changed(genuine: bytes) -> bytes:
    place = genuine.rindex(b'"signature":"') + len(b'"signature":"')
    digit = b"0" if genuine[place : place + 1] != b"0" else b"1"
    return genuine[:place] + digit + genuine[place + 1 :]


async def certificate_of_a_job(target: Target) -> bytes:
    """Have the trainer run an honest job with the crew, and return its certificate.

    Raises:
        CannotAttack: the job is not finished in time, or not taken.
    """
    two_rounds = "second_moments" in target.consortium.manifest.policy.queries
    method: RegressionMethod = "ball_projection" if two_rounds else "plain"
    request = job_request(target, round_seconds=30, grace_seconds=20, method=method)
    base, keys = f"/v1/jobs/{request.digest}", target.keys.clients
    joins = [
        sign(
            Membership(
                manifest=target.consortium.digest,
                job=request.digest,
                holder=target.holder(client),
                state=JOINED,
            ),
            Role.HOLDER.value,
            keys[client],
        ).encode()
        for client in target.crew
    ]
    for path, content in [
        ("/v1/jobs", request.encode()),
        *((f"{base}/memberships", each) for each in joins),
    ]:
        answer = await target.send(target.trainer, path, content)
        if answer.is_refusal:
            raise CannotAttack(f"the trainer refuses an honest job: {answer.reason}")

    async def shows(path: str) -> bool:
        return (await target.ask(target.trainer, path)).status == OK

    for number in range(len(request.body.task.query_names())):
        path = f"{base}/rounds/{number}"
        await target.until(partial(shows, path), "the round of a job", seconds=_WAIT_SECONDS)
        spec: Signed[RoundSpec] = decode((await target.ask(target.trainer, path)).body, RoundSpec)
        played = PlayedRound(target, spec)
        await played.answer(played.clients)
    path = f"{base}/certificate"
    await target.until(lambda: shows(path), "the certificate of a job", seconds=_WAIT_SECONDS)
    return unpack((await target.ask(target.trainer, path)).body)
