"""A crowd job's trainer that does not keep to its word, as data holders and analysts judge it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shoal_holder.crowds.closings import faults
from shoal_holder.crowds.crowd import Crowd as CheckedCrowd
from shoal_holder.crowds.memory import Evidence
from shoal_kit.outcome import ACKNOWLEDGED
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    InstanceHead,
    LogEntry,
    check_closing,
    replaced_instance,
    weights_digest,
)
from shoal_protocol.crowds.tasks import first_weights
from shoal_protocol.journal import GENESIS
from shoal_protocol.wire.errors import MalformedDocument, RefusedJob
from shoal_redteam.attack import Attack
from shoal_redteam.crowd import SHARE, TOTAL, Crowd, request_of, signed_request
from shoal_redteam.findings import (
    THREAT_MODEL,
    CannotAttack,
    Finding,
    documented,
    not_carried_out,
    refused,
    seen,
)
from shoal_redteam.target import Target

_WHERE: Final = f"{THREAT_MODEL}, Crowd jobs"
_JUDGE: Final = "a data holder and an analyst"


class LyingCrowdTrainer(Attack):
    """The trainer steers, drops, invents, forks or hides, and signs a closing that covers it."""

    name = "crowd-trainer"
    liar = "the trainer of a crowd job"
    tries = "draws steered or made up; contributions dropped, invented, forked; seed and end hidden"
    stopped_by = "the closing: seed, chains and what was kept must all fit; some is documented"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Have a crowd job run honestly, and tell of it otherwise, signed by the trainer."""
        allowed = target.consortium.manifest.policy.maximum_local_epsilon
        request = request_of(target, 1.0 if allowed is None else allowed / (2 * SHARE))
        if allowed is None:
            document = signed_request(target, request)
            yield refused(
                "a crowd job that the policy does not allow",
                {target.trainer: await target.send(target.trainer, "/v1/crowds", document)},
                by={RefusedJob.code},
                check="the policy's maximum_local_epsilon",
            )
            return
        told = await _honest(await Crowd.open(target, request))
        if said := told.verdict():
            raise CannotAttack(f"an honest crowd job is not borne out: {said}")
        for tried, (lie, due) in lies(told).items():
            said = lie.verdict()
            if said and due not in said:
                yield not_carried_out(tried, f"{_JUDGE}: {said}")
                continue
            yield seen(
                tried,
                stopped=bool(said),
                answered=f"{_JUDGE}: {said or 'borne out'}",
                check="the seed, the chains, the request and what was kept",
            )
        for tried, lie in unseen(told).items():
            said = lie.verdict()
            if said:
                raise CannotAttack(f"what should show nowhere does: {said}")
            yield documented(tried, answered=f"{_JUDGE}: borne out", where=_WHERE)


@dataclass(frozen=True)
class Told:
    """What a trainer tells of a crowd job, and what one party kept of it."""

    crowd: Crowd
    closing: CrowdClosing
    logs: tuple[tuple[LogEntry, ...], ...]
    kept: tuple[Evidence, ...]

    @property
    def beginning(self) -> tuple[int, ...]:
        """The weights with which every instance began."""
        return tuple(first_weights(self.crowd.request.task).tolist())

    def verdict(self) -> str:
        """Return what is wrong with it, "" if nothing is: by the checks of a data holder."""
        target, crowd = self.crowd.target, self.crowd
        now = target.after(0.0)
        try:
            check_closing(self.closing, crowd.opening, crowd.request, target.consortium, now=now)
        except MalformedDocument as error:
            return str(error)
        checked = CheckedCrowd(crowd.request, crowd.opening, target.consortium)
        judgement, found = faults(checked, self.closing, self.kept), dict[str, list[str]]()
        try:
            wanted = next(judgement)
            while True:
                wanted = judgement.send(self.logs[wanted.instance][wanted.after :])
        except StopIteration as end:
            found, _ = end.value
        return "; ".join(
            sorted({each.partition(": ")[2] or each for said in found.values() for each in said})
        )

    def ending(self, logs: Sequence[Sequence[LogEntry]], **weights: Any) -> "Told":
        """Return the same job with other logs, and a closing that fits them."""
        chained = tuple(map(_chained, logs))
        heads = tuple(
            InstanceHead(
                revision=len(log),
                digest=log[-1].digest if log else GENESIS,
                weights=self._weights(instance, log),
            )
            for instance, log in enumerate(chained)
        )
        changes = {"heads": heads, "contributions": sum(map(len, chained))}
        return replace(
            self, logs=chained, closing=self.closing.model_copy(update=changes | weights)
        )

    def _weights(self, instance: int, log: Sequence[LogEntry]) -> tuple[int, ...]:
        known = {weights_digest(each): each for each in self.crowd.sent}
        return known[log[-1].weights] if log else self.beginning

    def with_draw(self, place: int, **changes: Any) -> "Told":
        """Return the same with another draw in the place of one that was kept."""
        one = self.kept[place]
        draw = self.crowd.target.sign(
            one.draw.body.model_copy(update=changes), self.crowd.target.trainer
        )
        kept = (*self.kept[:place], replace(one, draw=draw), *self.kept[place + 1 :])
        return replace(self, kept=kept)

    def with_entry(self, place: int, **changes: Any) -> "Told":
        """Return the same with another receipt in the place of one that was kept."""
        one, target = self.kept[place], self.crowd.target
        if one.receipt is None:
            raise CannotAttack("a contribution has no receipt")
        entry = one.receipt.body.entry.model_copy(update=changes)
        receipt = target.sign(one.receipt.body.model_copy(update={"entry": entry}), target.trainer)
        kept = (*self.kept[:place], replace(one, receipt=receipt), *self.kept[place + 1 :])
        return replace(self, kept=kept)


def lies(told: Told) -> dict[str, tuple[Told, str]]:
    """Return what must show, and how."""
    closing, logs, count = told.closing, told.logs, len(told.logs)
    short = _without_one(told)
    late = max(range(TOTAL), key=lambda each: told.kept[each].draw.body.revision)
    draw = told.kept[late].draw.body
    other = (draw.instance + 1) % count
    entries = [each.receipt.body.entry for each in told.kept if each.receipt is not None]
    heads = tuple(
        head.model_copy(update={"weights": (9, 9)}) if head.revision else head
        for head in closing.heads
    )
    renamed = tuple(
        tuple(each.model_copy(update={"nonce": "c" * 64}) for each in log) for log in logs
    )
    return {
        "a draw of another instance than the seed gives": (
            told.with_draw(late, instance=other, revision=0, weights=told.beginning),
            "the seed gives another instance",
        ),
        "a draw of weights that the instance never had": (
            told.with_draw(late, weights=(17, 17)),
            "never had these weights",
        ),
        "a draw of a revision that the instance never had": (
            told.with_draw(late, revision=draw.revision + 1000),
            "never had revision",
        ),
        "a receipt for another instance than the seed gives": (
            told.with_entry(0, instance=(entries[0].instance + 1) % count),
            "another instance was replaced",
        ),
        "a receipt for other weights than are in the log": (
            told.with_entry(0, weights="f" * 64),
            "not in the instance's log",
        ),
        "one place for two contributions that were acknowledged": (
            told.with_entry(0, previous="e" * 64),
            "not in the instance's log",
        ),
        "one of its own making in the place of one that was acknowledged": (
            told.ending(_with_its_own(told, short)),
            "not in the instance's log",
        ),
        "a job closed before its time, which its analyst did not ask for": (
            replace(told.ending(short), kept=()),
            "closed the job early",
        ),
        "a log that is cut short": (
            replace(told, logs=tuple(map(tuple, short))),
            "ends too early",
        ),
        "a log with another nonce": (replace(told, logs=renamed), ""),
        "an end that the logs do not lead to": (
            replace(told, closing=closing.model_copy(update={"heads": heads})),
            "did not end as the closing says",
        ),
        "another seed than the opening commits to": (
            replace(told, closing=closing.model_copy(update={"seed": "ab" * 32})),
            "another seed",
        ),
        "more contributions than the job takes": (
            told.ending(_with_its_own(told, logs)),
            "more contributions than the job takes",
        ),
    }


def unseen(told: Told) -> dict[str, Told]:
    """Return what nobody can tell, as the documentation says."""
    its_own = told.ending(_with_its_own(told, _without_one(told)))
    found = {"contributions of its own making, as many as the job takes": replace(its_own, kept=())}
    for place, kept in enumerate(told.kept):
        if kept.draw.body.revision:
            found["a draw of the right instance as it was some time ago"] = told.with_draw(
                place, revision=0, weights=told.beginning
            )
    return found


def _without_one(told: Told) -> list[tuple[LogEntry, ...]]:
    """Return the logs without the last entry of the longest."""
    longest = max(range(len(told.logs)), key=lambda each: len(told.logs[each]))
    return [log[:-1] if each == longest else log for each, log in enumerate(told.logs)]


def _with_its_own(told: Told, logs: Sequence[Sequence[LogEntry]]) -> list[Sequence[LogEntry]]:
    """Return logs with one entry more, whose nonce leads to its instance."""
    nonce = told.crowd.target.random_bytes(32).hex()
    chosen = replaced_instance(bytes.fromhex(told.closing.seed), nonce, len(logs))
    template = next(entry for log in logs for entry in log)
    entry = template.model_copy(update={"instance": chosen, "nonce": nonce})
    return [[*log, entry] if each == chosen else log for each, log in enumerate(logs)]


def _chained(log: Sequence[LogEntry]) -> tuple[LogEntry, ...]:
    """Return the entries as a chain of their own."""
    chain: list[LogEntry] = []
    for number, each in enumerate(log, start=1):
        previous = chain[-1].digest if chain else GENESIS
        chain.append(each.model_copy(update={"revision": number, "previous": previous}))
    return tuple(chain)


async def _honest(crowd: Crowd) -> Told:
    """Have clients fill the job, and return how it ended and all that they kept."""
    target, kept = crowd.target, []
    clients = [client for client in target.crew for _ in range(SHARE)][:TOTAL]
    for number, client in enumerate(clients):
        draw = await crowd.contribute(client)
        kept.append(Evidence(str(number), ACKNOWLEDGED, draw, crowd.receipts[-1]))
    closing = await crowd.closing()
    logs = []
    for instance in range(len(closing.heads)):
        shown = await target.ask(target.trainer, f"{crowd.path}/log/{instance}")
        logs.append(tuple(map(LogEntry.model_validate, shown.json()["entries"])))
    return Told(crowd, closing, tuple(logs), tuple(kept))
