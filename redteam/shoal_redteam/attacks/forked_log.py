"""A log with two histories, one that gets shorter, and a manifest that it never had."""

from collections.abc import AsyncIterator
from typing import Final

from shoal_protocol.log.checkpoints import TooFewWitnesses, Witnessed, WrongProof
from shoal_protocol.log.entries import CHECKPOINTS, Submission, WrongStart
from shoal_protocol.trust.manifest import AUTHORITY_NAME
from shoal_protocol.trust.manifest_bundle import framed
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.errors import BadSignature
from shoal_redteam.attack import Attack
from shoal_redteam.findings import Finding, documented, refused
from shoal_redteam.forging import checkpoint_of
from shoal_redteam.target import Target

_FOLLOWS: Final = "a node signs only what follows the checkpoint that it signed last"
_WITNESSED: Final = "the next version needs the log's proof, which a quorum of nodes signed"
_SECONDS: Final = 60.0  # for the nodes to sign a first checkpoint


class ForkedLog(Attack):
    """The aggregator shows two histories, and the authority a version that nobody else has."""

    name = "forked-log"
    liar = "the aggregator, then the authority"
    tries = "checkpoints with other heads, or of fewer entries; a manifest that was never logged"
    stopped_by = "wrong-proof, wrong-start, too-few-witnesses"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Send every node other heads, and every service another manifest."""

        async def all_signed() -> bool:
            answers = [await target.ask(each, CHECKPOINTS) for each in target.nodes]
            return not any(each.is_refusal for each in answers)

        await target.until(all_signed, "a first checkpoint of the log", seconds=_SECONDS)
        for node in target.nodes:
            answer = await target.ask(node, CHECKPOINTS)
            shown = Witnessed.decode(answer.body).checkpoint.body
            for tried, size, after, code in (
                ("one size and another head", shown.size, 0, WrongProof.code),
                ("more entries after others", shown.size + 1, 1, WrongProof.code),
                ("another log from its first entry on", shown.size, shown.size, WrongStart.code),
                ("fewer entries", shown.size - 1, 0, WrongStart.code),
            ):
                body = self._forged(target, size, after, signer=target.aggregator)
                answers = await target.tell([node], CHECKPOINTS, body)
                yield refused(f"{node}: {tried}", answers, by={code}, check=_FOLLOWS)
            forged = self._forged(target, shown.size, 0, signer=target.trainer)
            answers = await target.tell([node], CHECKPOINTS, forged)
            what = f"{node}: a checkpoint that the trainer signed"
            yield refused(what, answers, by={BadSignature.code}, check="the aggregator's key")
        yield await self._unlogged(target)

    def _forged(self, target: Target, size: int, after: int, *, signer: str) -> bytes:
        other = "f" * 64
        checkpoint = checkpoint_of(target, size, other, signer=signer)
        return Submission(after=(other,) * after, checkpoint=checkpoint).encode()

    async def _unlogged(self, target: Target) -> Finding:
        """Offer a version that the authority signed and nobody logged."""
        before, what = target.consortium, "every service: a manifest that the log does not have"
        if before.manifest.policy.cosignatures is None:  # taken, it would end the other tries
            answered = "not offered: the policy has no cosignatures, so every service would take it"
            return documented(what, answered=answered, where="docs/threat-model.md")
        place = {"sequence": before.manifest.sequence + 1, "previous": before.digest}
        body = before.manifest.model_copy(update=place)
        signed = sign(body, AUTHORITY_NAME, target.keys.authority)
        content = framed(signed.encode(), before.roster.encode())
        answers = await target.tell(target.services, "/v1/manifest", content, method="PUT")
        return refused(what, answers, by={TooFewWitnesses.code}, check=_WITNESSED)
