"""Nobody steers who draws what: choices are uniform and independent, and planted steering shows.

A steering trainer here has the real key, signs real documents and lies in one thing. What clients
kept must convict it at the closing; where it never closes, counts of what was drawn must.
"""

import hashlib
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdOpening,
    Draw,
    InstanceChain,
    InstanceHead,
    LogEntry,
    SubmissionReceipt,
    broken_draws,
    broken_receipts,
    check_closing,
    commitment,
    drawn_instance,
    replaced_instance,
    weights_digest,
)
from shoal_protocol.privacy.ledger import GENESIS
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import MalformedDocument
from tests.world.crowd_examples import CROWD_CONSORTIUM, CROWD_JOB
from tests.world.examples import OPENED_AT, named, seed

K = 5
SEED = seed("seed of a crowd that is watched")
FALSE_ALARM = 1e-6
"""Of each chi-square test here, on draws that are fixed: none of the honest ones sounds."""

seeds = st.binary(min_size=32, max_size=32)
Choice = Callable[[str], int]


def nonce(number: int) -> str:
    return hashlib.sha256(b"nonce %d" % number).hexdigest()


def honest_draw(of: str) -> int:
    return drawn_instance(SEED, of, K)


def honest_place(of: str) -> int:
    return replaced_instance(SEED, of, K)


@pytest.mark.parametrize("instances", [2, 5, 64])
def test_draws_and_replacements_are_uniform_and_independent_of_each_other_and_of_nonces(
    instances: int,
) -> None:
    table = np.zeros((instances, instances))
    of_nonce = np.zeros((2, instances))
    for number in range(200 * instances):
        of = nonce(number)
        drawn, replaced = (
            choose(SEED, of, instances) for choose in (drawn_instance, replaced_instance)
        )
        table[drawn, replaced] += 1
        of_nonce[int(of, 16) % 2, drawn] += 1
    for counts in table.sum(axis=0), table.sum(axis=1), table.ravel():
        if counts.min() >= 1:
            assert stats.chisquare(counts).pvalue > FALSE_ALARM
    assert stats.chi2_contingency(of_nonce).pvalue > FALSE_ALARM


@given(one=seeds, other=seeds)
def test_a_seed_cannot_be_exchanged_for_another_after_the_commitment(
    one: bytes, other: bytes
) -> None:
    assert (commitment(one) == commitment(other)) == (one == other)


class Trainer:
    """A trainer of a small crowd, whose clients add one to the weights; it may choose otherwise."""

    def __init__(self, draw: Choice = honest_draw, place: Choice = honest_place) -> None:
        self._draw, self._place = draw, place
        self.opening = CrowdOpening(
            manifest=CROWD_JOB.manifest,
            job=CROWD_JOB.digest,
            commitment=commitment(SEED),
            instances=((0, 0, 0),) * K,
            opened_at=OPENED_AT,
        )
        self.weights = [list(self.opening.instances)[0:1] for _ in range(K)]
        self.log: list[list[LogEntry]] = [[] for _ in range(K)]
        self.draws: list[Signed[Draw]] = []
        self.receipts: list[Signed[SubmissionReceipt]] = []

    def serve(self, number: int, *, shown: tuple[int, ...] | None = None) -> None:
        """Answer a draw and take what comes back; both are kept by the client."""
        of = nonce(number)
        instance = self._draw(of)
        weights = shown or self.weights[instance][-1]
        draw = Draw(
            manifest=CROWD_JOB.manifest,
            job=CROWD_JOB.digest,
            nonce=of,
            instance=instance,
            revision=len(self.log[instance]),
            weights=weights,
            expires_at=CROWD_JOB.closes_at,
        )
        self.draws.append(named("trainer", draw))
        self.take(of, tuple(weight + 1 for weight in weights))

    def take(self, of: str, weights: tuple[int, ...]) -> None:
        place = self._place(of)
        previous = self.log[place][-1].digest if self.log[place] else GENESIS
        entry = LogEntry(
            job=CROWD_JOB.digest,
            instance=place,
            revision=len(self.log[place]) + 1,
            previous=previous,
            nonce=of,
            weights=weights_digest(weights),
        )
        self.log[place].append(entry)
        self.weights[place].append(weights)
        receipt = SubmissionReceipt(manifest=CROWD_JOB.manifest, entry=entry)
        self.receipts.append(named("trainer", receipt))

    def drop_last(self) -> None:
        """Forget the last submission, which was acknowledged."""
        place = self.receipts[-1].body.entry.instance
        self.log[place].pop()
        self.weights[place].pop()

    def closing(self, *, key: bytes = SEED) -> CrowdClosing:
        heads = tuple(
            InstanceHead(
                revision=len(log), digest=log[-1].digest if log else GENESIS, weights=weights[-1]
            )
            for log, weights in zip(self.log, self.weights, strict=True)
        )
        return CrowdClosing(
            manifest=CROWD_JOB.manifest,
            job=CROWD_JOB.digest,
            seed=key.hex(),
            heads=heads,
            contributions=sum(head.revision for head in heads),
            closed_at=CROWD_JOB.closes_at,
            closing_request=None,
        )

    def convicted(self, *, key: bytes = SEED) -> bool:
        """Tell whether what clients kept, with the closing and the logs, shows a lie."""
        closing = self.closing(key=key)
        try:
            check_closing(closing, self.opening, CROWD_JOB, CROWD_CONSORTIUM, now=closing.closed_at)
            chains = [InstanceChain(closing, self.opening, each) for each in range(K)]
            for chain, log in zip(chains, self.log, strict=True):
                chain.follow(log)
                chain.end()
        except MalformedDocument:
            return True
        if any(broken_draws(self.draws, closing)) or any(broken_receipts(self.receipts, closing)):
            return True
        entries = {entry.digest for log in self.log for entry in log}
        return not all(chains[each.body.instance].has(each.body) for each in self.draws) or not all(
            each.body.entry.digest in entries for each in self.receipts
        )


def served(trainer: Trainer, *, submissions: int = 40) -> Trainer:
    for number in range(submissions):
        trainer.serve(number)
    return trainer


def test_an_honest_trainer_is_never_convicted() -> None:
    assert not served(Trainer()).convicted()


def avoiding(of: str) -> int:
    return honest_draw(of) or 1


def ground(of: str) -> int:
    """Draw by another seed than was committed to."""
    return drawn_instance(seed("another seed"), of, K)


STEERED = {
    "always the same instance": Trainer(draw=lambda of: 2),
    "never one instance": Trainer(draw=avoiding),
    "by another seed": Trainer(draw=ground),
    "some clients only": Trainer(draw=lambda of: 0 if of[0] in "0123" else honest_draw(of)),
    "replaced elsewhere": Trainer(place=lambda of: 3),
    "replaced in place": Trainer(place=honest_draw),
}


@pytest.mark.parametrize("kind", STEERED)
def test_a_trainer_that_steers_is_convicted_by_what_clients_kept(kind: str) -> None:
    assert served(STEERED[kind]).convicted()


def test_a_trainer_that_reveals_a_seed_that_fits_its_steering_is_convicted() -> None:
    steered = served(Trainer(draw=ground))
    assert steered.convicted(key=seed("another seed"))


def test_weights_that_were_made_for_one_client_convict_the_trainer() -> None:
    trainer = served(Trainer())
    trainer.serve(1000, shown=(9_999, -9_999, 0))
    assert trainer.convicted()


def test_a_submission_that_was_acknowledged_and_dropped_convicts_the_trainer() -> None:
    trainer = served(Trainer())
    trainer.drop_last()
    assert trainer.convicted()


def pvalue(draw: Choice, draws: int) -> float:
    counts = Counter(draw(nonce(number)) for number in range(draws))
    return float(stats.chisquare([counts[each] for each in range(K)]).pvalue)


def test_a_trainer_that_never_closes_shows_in_what_was_drawn() -> None:
    # An instance that is never drawn: of 500 draws each instance has 100, standard deviation 9;
    # the other one's 200 and 0 give a chi-square of 200 at 4 degrees of freedom.
    assert pvalue(honest_draw, 500) > FALSE_ALARM
    assert pvalue(avoiding, 500) < FALSE_ALARM
    assert pvalue(lambda of: 2, 20) < FALSE_ALARM


def test_steering_of_a_few_clients_only_does_not_show_before_the_closing() -> None:
    # known: a quarter that is steered is within chance in 50 draws; at the end it is convicted
    def few(of: str) -> int:
        return 0 if of[0] in "0123" else honest_draw(of)

    assert pvalue(few, 50) > FALSE_ALARM
    assert served(Trainer(draw=few), submissions=50).convicted()
