"""Doing what only another party may do: with no key, a stranger's key, or the wrong party's."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
from nacl.signing import SigningKey

from shoal_kit.peers.exchange import Connection, Reply, Unavailable
from shoal_protocol.rounds.attestations import Abandonment, AbandonmentReason
from shoal_protocol.wire.documents import Document, Signed, sign
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, UnknownSigner, WrongSigner
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.equivocation import vote_for
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.findings import Finding, refused, seen
from shoal_redteam.forging import PLACE, claimed_sum, tell_node
from shoal_redteam.played_round import SHORT_SECONDS, PlayedRound, begin, honest_spec
from shoal_redteam.target import Target
from shoal_studies.study_request import JobsQuery

_TOKEN_NEEDED = "token-needed"
_CHECK = "the party in charge, by the manifest, must have signed"


class Unauthenticated(Attack):
    """Somebody says what only another party may say, or asks what nobody may know."""

    name = "unauthenticated"
    liar = "anybody, and parties that are not in charge"
    tries = "documents signed by strangers, by the wrong party or by nobody; early partial sums"
    stopped_by = "unknown-signer, wrong-signer, bad-signature, malformed-document"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Try each message in the names of those who may not send it."""
        stranger = SigningKey(target.random_bytes(32))
        takers = (*target.nodes, target.aggregator)
        async for finding in self._signed_by_others(
            target, "a round", honest_spec(target), target.trainer, stranger, takers, "/v1/rounds"
        ):
            yield finding
        request = job_request(target).body
        async for finding in self._signed_by_others(
            target, "a job", request, target.analyst, stranger, (target.trainer,), "/v1/jobs"
        ):
            yield finding
        query = JobsQuery(manifest=request.manifest, analyst=request.analyst, at=target.clock())
        async for finding in self._signed_by_others(
            target,
            "a query for all jobs",
            query,
            target.analyst,
            stranger,
            (target.trainer,),
            "/v1/jobs/list",
        ):
            yield finding
        lists: dict[str, tuple[str, str, Document]] = {
            "jobs that may be joined": (target.trainer, "/v1/jobs/joining", query),
            "crowd jobs": (target.trainer, "/v1/crowds/list", query),
            "declarations": (target.trainer, "/v1/declarations/list", query),
        }
        for what, (asked, path, body) in lists.items():
            forged = sign(body, "stranger", stranger).encode()
            yield refused(
                f"the list of {what}, asked by a stranger, and without any signature",
                {
                    f"{asked}, a stranger": await target.send(asked, path, forged),
                    f"{asked}, unsigned": await target.send(asked, path, b"{}"),
                },
                by={UnknownSigner.code, MalformedDocument.code},
                check="who needs a list signs for it",
            )
        played = await begin(target, seconds=SHORT_SECONDS)
        *present, _ = played.clients
        await played.answer(present)
        node, values = target.nodes[0], np.zeros(played.spec.dimension, np.uint64)
        async for finding in self._signed_by_others(
            target,
            "a partial sum",
            claimed_sum(played, node, present, values),
            node,
            stranger,
            (target.aggregator,),
            f"{played.path}/ends",
        ):
            yield finding
        body = Abandonment(
            manifest=played.spec.manifest,
            round=played.signed.digest,
            party=node,
            reason=AbandonmentReason(code="misconduct"),
            entry=PLACE,
        )
        async for finding in self._signed_by_others(
            target,
            "an abandonment",
            body,
            node,
            stranger,
            (target.aggregator,),
            f"{played.path}/ends",
        ):
            yield finding
        yield await self._gossip_of_strangers(played, stranger)
        yield seen(
            "partial sums from the aggregator before the result",
            stopped=not await played.partial_sums(),
            answered=f"{target.aggregator}: none is shown",
            check="they are shown with the result, or never",
        )
        yield seen(
            "the total of the round in which it was tried",
            stopped=await played.released_exactly(present),
            answered=f"{target.aggregator}: the sum of the answers",
            check="nothing of what was forged counted",
        )
        yield await self._shown_by_nodes(played)
        yield refused(
            "the trainer's ledger, which lists all rounds, without its operator's token",
            {target.trainer: await target.ask(target.trainer, "/v1/ledger")},
            by={_TOKEN_NEEDED},
            check="the operator's token opens the ledger",
        )
        if agents := await self._agents(target):
            yield agents

    async def _signed_by_others(
        self,
        target: Target,
        what: str,
        body: Document,
        due: str,
        stranger: SigningKey,
        takers: tuple[str, ...],
        path: str,
    ) -> AsyncIterator[Finding]:
        """Send `body` as signed by everybody but `due`; each message has one such fault."""
        wrong = target.analyst if due != target.analyst else target.aggregator
        forgeries: Mapping[str, tuple[Signed[Any], str]] = {
            "signed by a stranger": (sign(body, "stranger", stranger), UnknownSigner.code),
            f"signed by {wrong}": (target.sign(body, wrong), WrongSigner.code),
            f"in the name of {due}, with a stranger's signature": (
                sign(body, due, stranger),
                BadSignature.code,
            ),
        }
        for how, (signed, code) in forgeries.items():
            answers = await target.tell(takers, path, signed.encode())
            yield refused(f"{what} {how}", answers, by={code}, check=_CHECK)
        unsigned = canonical_json(body.model_dump(mode="json"))
        yield refused(
            f"{what} without a signature",
            await target.tell(takers, path, unsigned),
            by={MalformedDocument.code},
            check="a document is signed, or it is none",
        )

    async def _gossip_of_strangers(self, played: PlayedRound, stranger: SigningKey) -> Finding:
        target, (witness, victim) = played.target, played.target.nodes[:2]
        vote = vote_for(played, victim, played.clients[:-1])
        forgeries = [
            sign(vote, "stranger", stranger),
            sign(vote, victim, stranger),
            target.sign(vote, target.aggregator),
            target.sign(vote, target.trainer),
        ]
        for forgery in forgeries:
            await tell_node(target, witness, forgery)
        shown = await played.documents(witness)
        return seen(
            "votes gossiped by strangers and by parties that do not vote",
            stopped=not any(each.to_json() in shown for each in forgeries),
            answered=f"{witness}: none of the {len(forgeries)} is kept",
            check=_CHECK,
        )

    async def _shown_by_nodes(self, played: PlayedRound) -> Finding:
        target = played.target
        kinds = {
            each["body"]["kind"] for name in target.nodes for each in await played.documents(name)
        }
        return seen(
            "partial sums from the nodes themselves",
            stopped="partial_sum" not in kinds and {"holdings", "vote"} <= kinds,
            answered=f"{len(target.nodes)} nodes: holdings and votes, no sum",
            check="a node gives its sum to the aggregator alone",
        )

    async def _agents(self, target: Target) -> Finding | None:
        """Ask each site's agent that is up for its ledger, without its owner's token."""
        answers: dict[str, Reply] = {}
        for home in sorted((target.directory / "clients").iterdir()):
            certificate, url = (home / "tls.crt").read_text(), (home / "url").read_text().strip()
            async with Connection(url, certificate, transport=target.transport) as connection:
                for how, token in {"no token": "", "a wrong token": "Bearer 00"}.items():
                    try:
                        answers[f"{home.name} with {how}"] = await connection.ask(
                            "GET", "/v1/ledger", headers={"Authorization": token}
                        )
                    except Unavailable:
                        break  # it is not up
        if not answers:
            return None
        return refused(
            "an agent's ledger, without its owner's token",
            answers,
            by={_TOKEN_NEEDED},
            check="the owner's token opens the ledger",
        )
