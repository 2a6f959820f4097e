"""Two versions of the manifest with one number, and two reports of one job."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from shoal_protocol.jobs.totals import JobEnd
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Manifest
from shoal_protocol.trust.succession import SIGNATURES_PATH, lying_nodes, statements, written
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.errors import TooFewSignatures
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.key_substitution import (
    accepted_by_a_data_holder,
    next_manifest,
    offer,
)
from shoal_redteam.findings import CannotAttack, Finding, documented, refused, refused_codes, seen
from shoal_redteam.forging import manifest_statement
from shoal_redteam.target import Target

_ONE: Final = "a node signs one version of each number, which its journal keeps"
_QUORUM: Final = "a version counts with the signatures of q nodes of the version before"


class TwoHistories(Attack):
    """The authority shows two versions of one number, the trainer two reports of one job."""

    name = "two-histories"
    liar = "the authority and fewer than 2q - M Compute nodes, then the trainer"
    tries = "two versions of the manifest with one number; two reports of one job"
    stopped_by = "conflicting-document, too-few-signatures: a node signs one statement of each kind"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Have honest nodes sign one version, and the liars both; then end a job twice."""
        manifest = target.consortium.manifest
        if manifest.policy.manifest_signatures is None:  # taken, it would end the other tries
            yield documented(
                "every service: a version that no Compute node signed",
                answered="not offered: the policy asks for no signatures of Compute nodes, so "
                "every service would take it",
                where="docs/threat-model.md",
            )
        else:
            async for finding in self._two_versions(target):
                yield finding
        yield await self._two_reports(target)

    async def _two_versions(self, target: Target) -> AsyncIterator[Finding]:
        manifest, nodes = target.consortium.manifest, target.nodes
        liars = nodes[: lying_nodes(manifest) - 1]
        one, other = (_next(target, cohort=manifest.policy.minimum_cohort + n) for n in (0, 1))
        first = nodes[len(liars) : manifest.quorum]
        others = nodes[manifest.quorum :]
        signed = await target.tell(first, SIGNATURES_PATH, one.encode())
        if any(each.is_refusal for each in signed.values()):
            raise CannotAttack("a Compute node signs no version of the manifest")
        answers = await target.tell(first, SIGNATURES_PATH, other.encode())
        yield refused(
            "another version of the number that a node signed",
            answers,
            by={ConflictingDocument.code},
            check=_ONE,
        )
        answers = await target.tell(others, SIGNATURES_PATH, other.encode())
        honest = [
            statement
            for each in answers.values()
            if not each.is_refusal
            for statement in statements(f"[{each.body.decode()}]")
        ]
        lies = [manifest_statement(target, other.body, node) for node in liars]
        in_names = [manifest_statement(target, other.body, node, target.trainer) for node in first]
        for tried, shown in {
            "the other version, signed by all other nodes and the liars": (*honest, *lies),
            "the same, each signature twice": (*honest, *lies, *honest, *lies),
            "the same, with the trainer's signatures in the honest nodes' names": (
                *(*honest, *lies),
                *in_names,
            ),
        }.items():
            rival = replace(other, countersignatures=written(shown))
            yield refused(
                f"{tried}, to every service",
                await offer(target, rival),
                by={TooFewSignatures.code},
                check=_QUORUM,
            )
            yield refused_codes(
                f"{tried}, to a data holder",
                {"a data holder": accepted_by_a_data_holder(target, rival)},
                by={TooFewSignatures.code},
                check=_QUORUM,
            )

    async def _two_reports(self, target: Target) -> Finding:
        """End a job twice, with two reports."""
        job = target.random_bytes(32).hex()

        async def totals() -> set[tuple[str, bytes]]:
            report = target.random_bytes(32).hex()
            end = JobEnd(manifest=target.consortium.digest, job=job, report=report)
            word = target.sign(end, target.trainer).encode()
            answers = await target.tell(target.nodes, "/v1/totals", word)
            return {(name, each.body) for name, each in answers.items() if not each.is_refusal}

        before = await totals()
        if len(before) < len(target.nodes):
            raise CannotAttack("a Compute node signs no total")
        return seen(
            "a second report of a job",
            stopped=await totals() == before,
            answered=f"{len(before)} nodes: the total that they signed before, of the first report",
            check="a node signs one total of a job, which names the report",
        )


def _next(target: Target, *, cohort: int) -> Signed[Manifest]:
    """Return a next version that the authority signs; the cohort tells one from another."""
    policy = target.consortium.manifest.policy.model_copy(update={"minimum_cohort": cohort})
    return sign(next_manifest(target, policy=policy), AUTHORITY_NAME, target.keys.authority)
