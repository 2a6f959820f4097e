"""A log with two histories, one that gets shorter, and a manifest that it never had."""

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Final

from shoal_protocol.log.notes import (
    ADD_CHECKPOINT,
    Checkpoint,
    Submission,
    TooFewWitnesses,
    origin_of,
    read_note,
    sign_note,
)
from shoal_protocol.log.tiles import WrongProof
from shoal_protocol.trust.manifest import AUTHORITY_NAME
from shoal_protocol.trust.manifest_bundle import framed
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.errors import BadSignature
from shoal_redteam.attack import Attack
from shoal_redteam.findings import Finding, documented, refused, seen
from shoal_redteam.target import Target

_FOLLOWS: Final = "a node signs only what follows the checkpoint that it signed last"
_WITNESSED: Final = "the next version needs the log's proof, which a quorum of nodes signed"
_SECONDS: Final = 60.0  # for the nodes to sign a first checkpoint


class ForkedLog(Attack):
    """The aggregator shows two histories, and the authority a version that nobody else has."""

    name = "forked-log"
    liar = "the aggregator, then the authority"
    tries = "checkpoints with other roots, or of fewer entries; a manifest that was never logged"
    stopped_by = "wrong-proof, a conflict that names the size, too-few-witnesses"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Send every node other trees, and every service another manifest."""
        origin = origin_of(target.consortium.manifest)
        path = f"/witness/{sha256(origin.encode()).hexdigest()}/checkpoint"

        async def all_signed() -> bool:
            return not any([(await target.ask(each, path)).is_refusal for each in target.nodes])

        await target.until(all_signed, "a first checkpoint of the log", seconds=_SECONDS)
        for node in target.nodes:
            shown = read_note((await target.ask(node, path)).body.decode()).checkpoint
            for tried, old, size, proof in (
                ("one size and another root", shown.size, shown.size, []),
                ("more entries after others", shown.size, shown.size + 1, [bytes(32)]),
            ):
                body = self._forged(target, origin, old, size, proof)
                answers = await target.tell([node], ADD_CHECKPOINT, body)
                yield refused(f"{node}: {tried}", answers, by={WrongProof.code}, check=_FOLLOWS)
            body = self._forged(target, origin, 0, shown.size, [])
            answer = await target.send(node, ADD_CHECKPOINT, body)
            yield seen(
                f"{node}: another log from its first entry on",
                stopped=answer.status == 409 and int(answer.body) >= shown.size,
                answered=f"{answer.status}: it signed {shown.size} entries",
                check=_FOLLOWS,
            )
            forged = self._forged(target, origin, shown.size, shown.size, [], signer=target.trainer)
            answers = await target.tell([node], ADD_CHECKPOINT, forged)
            what = f"{node}: a checkpoint that the trainer signed"
            yield refused(what, answers, by={BadSignature.code}, check="the aggregator's key")
        yield await self._unlogged(target)

    def _forged(
        self,
        target: Target,
        origin: str,
        old: int,
        size: int,
        proof: list[bytes],
        *,
        signer: str | None = None,
    ) -> bytes:
        text = Checkpoint(origin, size, sha256(b"another history").digest()).text
        line = sign_note(text, origin, target.key(signer or target.aggregator))
        return str(Submission(old, proof, read_note(f"{text}\n{line}"))).encode()

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


ATTACKS = (ForkedLog,)
