"""A crowd job that the red team plays: it is the analyst and all clients, the trainer is real."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shoal_holder.crowds.contributor import draw_noise
from shoal_holder.noise import exact_noise
from shoal_kit.outcome import CREATED, OK
from shoal_kit.peers.exchange import Reply
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    InstanceChain,
    LogEntry,
    Submission,
    SubmissionReceipt,
    broken_draws,
    broken_receipts,
    check_closing,
)
from shoal_protocol.crowds.tasks import CrowdTask, contribute
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.wire.documents import Role, Signed, decode, sign
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import ProtocolError
from shoal_redteam.findings import CannotAttack
from shoal_redteam.target import Target

SHARE: Final = 2  # contributions of a client
TOTAL: Final = 6
OPEN_SECONDS: Final = 3600.0
PATIENCE_SECONDS: Final = 30.0


def request_of(target: Target, epsilon: float) -> CrowdJobRequest:
    """Return the request for a small crowd job in which one contribution costs so much."""
    task = CrowdTask(
        family="linear",
        features=(ColumnBounds(name="first", lower=-1.0, upper=1.0),),
        target=ColumnBounds(name="second", lower=-1.0, upper=1.0),
        clip=0.05,
        epsilon=epsilon,
        learning_rate=0.1,
        instances=3,
    )
    return CrowdJobRequest(
        manifest=target.consortium.digest,
        nonce=target.random_bytes(16).hex(),
        analyst=target.analyst,
        task=task,
        contributions=TOTAL,
        contributions_per_client=SHARE,
        session_seconds=600,
        closes_at=target.after(OPEN_SECONDS),
    )


def signed_request(target: Target, request: CrowdJobRequest) -> bytes:
    """Return the request as the analyst signs it."""
    return target.sign(request, target.analyst).encode()


@dataclass
class Crowd:
    """A crowd job of the red team, which plays all its clients."""

    target: Target
    request: CrowdJobRequest
    opening: CrowdOpening
    draws: list[Signed[Draw]] = field(default_factory=list)
    receipts: list[Signed[SubmissionReceipt]] = field(default_factory=list)
    sent: list[tuple[int, ...]] = field(default_factory=list)  # weights of submissions

    @classmethod
    async def open(cls, target: Target, request: CrowdJobRequest) -> "Crowd":
        """Open it.

        Raises:
            CannotAttack: the trainer does not.
        """
        answer = await target.send(target.trainer, "/v1/crowds", signed_request(target, request))
        if answer.status != CREATED:
            raise CannotAttack(f"the trainer opens no crowd job: {answer.code}")
        shown = await target.ask(target.trainer, f"/v1/crowds/{request.digest}/opening")
        return cls(target, request, decode(shown.body, CrowdOpening).body)

    @property
    def path(self) -> str:
        """Return the job's path at the trainer."""
        return f"/v1/crowds/{self.request.digest}"

    async def ask_draw(self) -> Reply:
        """Ask for a draw, with a nonce of its own."""
        nonce = self.target.random_bytes(32).hex()
        body = canonical_json({"nonce": nonce})
        return await self.target.send(self.target.trainer, f"{self.path}/draws", body)

    async def draw(self) -> Signed[Draw]:
        """Return a draw.

        Raises:
            CannotAttack: there is none.
        """
        answer = await self.ask_draw()
        if answer.is_refusal:
            raise CannotAttack(f"the trainer serves no draw: {answer.code}")
        drawn = decode(answer.body, Draw)
        self.draws.append(drawn)
        return drawn

    def honest(self, draw: Signed[Draw]) -> tuple[int, ...]:
        """Return the weights that an honest client could send."""
        task = self.request.task
        [noise] = draw_noise(task, 1, exact_noise)
        weights = np.array(draw.body.weights, np.int64)
        step = np.zeros_like(weights)
        return tuple(contribute(task, weights, step, coordinate=1, noise=noise).tolist())

    def submission(
        self, draw: Signed[Draw], client: int, weights: Sequence[int], *, key: int | None = None
    ) -> bytes:
        """Return a submission of these weights, signed with the key of `key` or of `client`."""
        body = Submission(
            manifest=self.request.manifest, client=client, draw=draw, weights=tuple(weights)
        )
        self.sent.append(tuple(weights))
        signer = client if key is None else key
        return sign(body, Role.CLIENT, self.target.keys.clients[signer]).encode()

    async def submit(self, document: bytes) -> Reply:
        """Send a submission; a receipt is kept."""
        answer = await self.target.send(self.target.trainer, f"{self.path}/submissions", document)
        if not answer.is_refusal:
            self.receipts.append(decode(answer.body, SubmissionReceipt))
        return answer

    async def contribute(self, client: int) -> Signed[Draw]:
        """Have a client contribute honestly; return what was drawn.

        Raises:
            CannotAttack: the trainer does not take it.
        """
        draw = await self.draw()
        answer = await self.submit(self.submission(draw, client, self.honest(draw)))
        if answer.status != CREATED:
            raise CannotAttack(f"{self.target.trainer} does not take honest steps: {answer.code}")
        return draw

    async def closing(self) -> CrowdClosing:
        """Wait for the closing; return it, verified.

        Raises:
            CannotAttack: it does not come, or does not verify.
        """
        target, path = self.target, f"{self.path}/closing"

        async def is_closed() -> bool:
            return (await target.ask(target.trainer, path)).status == OK

        await target.until(is_closed, "the closing of a crowd job", seconds=PATIENCE_SECONDS)
        signed = decode((await target.ask(target.trainer, path)).body, CrowdClosing)
        try:
            target.consortium.verify(signed)
        except ProtocolError as error:
            raise CannotAttack(f"the closing does not verify: {error}") from error
        return signed.body

    async def is_borne_out(self, closing: CrowdClosing, digests: Sequence[str]) -> bool:
        """Tell whether the logs hold exactly these weights, and all that was signed fits them."""
        logged: list[str] = []
        try:
            check_closing(
                closing, self.opening, self.request, self.target.consortium, now=self.target.clock()
            )
            for instance in range(len(closing.heads)):
                chain = InstanceChain(closing, self.request.task, instance)
                shown = await self.target.ask(self.target.trainer, f"{self.path}/log/{instance}")
                chain.follow([LogEntry.model_validate(each) for each in shown.json()["entries"]])
                chain.end()
                logged += chain.weights[1:]
        except ProtocolError:
            return False
        lies = [*broken_draws(self.draws, closing), *broken_receipts(self.receipts, closing)]
        return sorted(logged) == sorted(digests) and not lies
