"""A client that bends a crowd job: too far, too often, on forged draws, under another name."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from shoal_kit.outcome import CREATED, OK
from shoal_protocol.crowds.draws import CrowdClosed
from shoal_protocol.crowds.submissions import ContributionsUsedUp, RefusedSubmission, largest_change
from shoal_protocol.crowds.tasks import LARGEST_WEIGHT
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.errors import BadSignature, RefusedJob, UnknownHolder, WrongSigner
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_redteam.attack import Attack
from shoal_redteam.crowd import SHARE, TOTAL, Crowd, request_of, signed_request
from shoal_redteam.findings import Finding, refused, seen
from shoal_redteam.target import Target

COPIES: Final = 12


class CrowdSubmissions(Attack):
    """Submissions to a crowd job that no honest client makes."""

    name = "crowd-submissions"
    liar = "a client, or somebody with keys of his own"
    tries = "steps too large, on two weights or forged draws; two answers, replays, too many"
    stopped_by = "refused-submission, bad-signature, conflicting-document, contributions-used-up"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Submit what is no step, then as many steps as the job takes, and look at its end."""
        allowed = target.consortium.manifest.policy.maximum_local_epsilon
        dear = request_of(target, 1.0 if allowed is None else allowed)
        yield refused(
            "a crowd job that costs a client more than the policy allows",
            {
                target.trainer: await target.send(
                    target.trainer, "/v1/crowds", signed_request(target, dear)
                )
            },
            by={RefusedJob.code},
            check="the policy's maximum_local_epsilon",
        )
        if allowed is None:
            return
        crowd = await Crowd.open(target, request_of(target, allowed / (2 * SHARE)))
        async for finding in _dishonest_steps(crowd):
            yield finding
        async for finding in _twice(crowd):
            yield finding
        async for finding in _the_end(crowd):
            yield finding


async def _dishonest_steps(crowd: Crowd) -> AsyncIterator[Finding]:
    target, client = crowd.target, crowd.target.crew[0]
    other = target.crew[1]
    draw = await crowd.draw()
    first, second = draw.body.weights
    too_far = largest_change(crowd.request.task) + 1
    for tried, weights in {
        "a step that is larger than any honest one with its noise": (first + too_far, second),
        "weights from the end of what there is": (first, LARGEST_WEIGHT),
        "a step on two weights where one is touched": (first + 1, second + 1),
        "weights of another number": (first,),
    }.items():
        yield refused(
            tried,
            {target.trainer: await crowd.submit(crowd.submission(draw, client, weights))},
            by={RefusedSubmission.code},
            check="the bound on what a step can be",
        )
    edited = draw.body.model_copy(update={"weights": (first + 10 * too_far, second)})
    moved = Signed(body=edited, signer=draw.signer, signature=draw.signature)
    weights = (first + 10 * too_far, second)
    yield refused(
        "a draw with other weights under the trainer's signature",
        {target.trainer: await crowd.submit(crowd.submission(moved, client, weights))},
        by={BadSignature.code},
        check="the trainer signed the draw that comes back",
    )
    own = sign(edited, target.trainer, target.keys.clients[client])
    yield refused(
        "a draw that the client signed itself",
        {target.trainer: await crowd.submit(crowd.submission(own, client, weights))},
        by={BadSignature.code},
        check="the trainer signed the draw that comes back",
    )
    yield refused(
        "a submission under a client's index of another data holder",
        {
            target.trainer: await crowd.submit(
                crowd.submission(draw, other, (first, second), key=client)
            )
        },
        by={BadSignature.code},
        check="the holder of the slot signed the submission",
    )
    stranger = len(target.consortium.roster) + 1
    yield refused(
        "a submission of a client that is not enrolled",
        {
            target.trainer: await crowd.submit(
                crowd.submission(draw, stranger, (first, second), key=client)
            )
        },
        by={UnknownHolder.code, WrongSigner.code},
        check="the roster",
    )


async def _twice(crowd: Crowd) -> AsyncIterator[Finding]:
    target, (client, other, *_) = crowd.target, crowd.target.crew
    draw = await crowd.draw()
    weights = crowd.honest(draw)
    document = crowd.submission(draw, client, weights)
    statuses = [
        each.status
        for each in await asyncio.gather(*(crowd.submit(document) for _ in range(COPIES)))
    ]
    yield seen(
        f"{COPIES} copies of a submission at once",
        stopped=sorted(statuses) == [OK] * (COPIES - 1) + [CREATED],
        answered=f"{target.trainer}: {statuses.count(CREATED)} stored, {statuses.count(OK)} known",
        check="one submission for each nonce",
    )
    changed = (weights[0], weights[1] + 1)
    for tried, sender in {"the same client": client, "another client": other}.items():
        yield refused(
            f"a second answer to a draw, by {tried}",
            {target.trainer: await crowd.submit(crowd.submission(draw, sender, changed))},
            by={ConflictingDocument.code},
            check="one submission for each nonce",
        )
    await crowd.contribute(client)
    draw = await crowd.draw()
    yield refused(
        "a contribution more than the job takes of a client",
        {target.trainer: await crowd.submit(crowd.submission(draw, client, crowd.honest(draw)))},
        by={ContributionsUsedUp.code},
        check="the trainer counts each client's contributions",
    )


async def _the_end(crowd: Crowd) -> AsyncIterator[Finding]:
    target = crowd.target
    others = [client for client in target.crew[1:] for _ in range(SHARE)]
    for client in others[: TOTAL - SHARE]:
        await crowd.contribute(client)
    late = crowd.draws[0]
    closing = await crowd.closing()
    acknowledged = {each.body.entry.digest: each.body.entry for each in crowd.receipts}
    digests = [entry.weights for entry in acknowledged.values()]
    yield seen(
        "the instances after all this",
        stopped=len(digests) == TOTAL and await crowd.is_borne_out(closing, digests),
        answered=f"{target.trainer}: {closing.contributions} contributions, each in its log",
        check="what was acknowledged is in the instances' chains, and nothing else",
    )
    client = target.crew[-1]
    document = crowd.submission(late, client, crowd.honest(late))
    yield refused(
        "a submission and a draw after the closing",
        {
            f"{target.trainer}, submissions": await crowd.submit(document),
            f"{target.trainer}, draws": await crowd.ask_draw(),
        },
        by={CrowdClosed.code},
        check="a closed job takes nothing",
    )
