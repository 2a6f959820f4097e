"""Weaknesses to plant in what is most private: the noise, the budgets, the owner's own rules."""

import itertools
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from pyroaring import BitMap
from sqlalchemy import Connection

from shoal_compute import announcing, store
from shoal_compute.schema import charges
from shoal_holder import approvals, rounds, spending
from shoal_holder.crowds import closings as crowd_closings
from shoal_holder.noise import NoiseSampler
from shoal_holder.policy import Policy
from shoal_protocol.certificates import checks
from shoal_protocol.jobs import job_request
from shoal_protocol.privacy.accounting import Balances, Cap, Cost
from shoal_protocol.rounds import round_spec
from shoal_protocol.rounds.attestations import PartialSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.policy import TimeLimits
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import Int64Vector
from shoal_protocol.wire.phases import Phase
from shoal_redteam.attacks import crowd_trainer
from shoal_service.storage.journal import JournalWriter
from shoal_studies import study_request

Plant = Callable[[pytest.MonkeyPatch], None]


def _noise_as(
    change: Callable[[Int64Vector, dict[tuple[int, ...], Int64Vector]], Int64Vector],
) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        draw, first = rounds.draw_noise, {}

        def drawn(spec: RoundSpec, clients: int, noise: NoiseSampler) -> Int64Vector:
            return change(draw(spec, clients, noise), first)

        patch.setattr(rounds, "draw_noise", drawn)

    plant.__name__ = change.__name__
    return plant


@_noise_as
def a_thousandth_of_the_noise(
    noise: Int64Vector, first: dict[tuple[int, ...], Int64Vector]
) -> Int64Vector:
    """A data holder adds 1/1000 of its noise."""
    return noise // 1000


@_noise_as
def half_the_noise(noise: Int64Vector, first: dict[tuple[int, ...], Int64Vector]) -> Int64Vector:
    """A data holder adds half of its noise."""
    return noise // 2


@_noise_as
def no_noise(noise: Int64Vector, first: dict[tuple[int, ...], Int64Vector]) -> Int64Vector:
    """A data holder adds no noise."""
    return np.zeros_like(noise)


@_noise_as
def the_same_noise(noise: Int64Vector, first: dict[tuple[int, ...], Int64Vector]) -> Int64Vector:
    """A data holder draws noise once, for all rounds."""
    return first.setdefault(noise.shape, noise)


@_noise_as
def shared_noise(noise: Int64Vector, first: dict[tuple[int, ...], Int64Vector]) -> Int64Vector:
    """A data holder draws one number for all coordinates of a round."""
    return np.repeat(noise[:, :1], noise.shape[1], axis=1)


def returned_charges(patch: pytest.MonkeyPatch) -> None:
    """A Compute node gives back the charge of every round that it abandons."""

    def give_back(writer: JournalWriter, round_id: str, old: Phase) -> None:
        charges.give_back(writer, round_id)

    patch.setattr(store, "_return_charge", give_back)


def jobs_without_end(patch: pytest.MonkeyPatch) -> None:
    """A Compute node takes rounds of a job out of turn, and after it has signed their number."""
    patch.setattr(announcing, "check_next", lambda *arguments: None)


def any_number(patch: pytest.MonkeyPatch) -> None:
    """A Compute node files a round under another number than its own."""
    add, numbers = store.add_round, itertools.count()

    def added(db: Connection, spec: Signed[RoundSpec]) -> bool:
        body = spec.body.model_copy(update={"number": next(numbers)})
        other = Signed(body, spec.signer, spec.signature)
        is_new = add(db, other)
        filed = store.rounds.c.id == other.digest
        named = {"id": spec.digest, "spec": spec.encode()}
        db.execute(store.rounds.update().where(filed).values(named))
        return is_new

    patch.setattr(store, "add_round", added)
    jobs_without_end(patch)


def a_higher_cap(patch: pytest.MonkeyPatch) -> None:
    """A Compute node takes what is 0.001 % beyond the cap."""
    affording = Balances.affording

    def too_many(self: Balances, clients: BitMap, cost: Cost, cap: Cap) -> BitMap:
        return affording(self, clients, cost, Cap(epsilon=cap.epsilon * 1.00001, delta=cap.delta))

    patch.setattr(Balances, "affording", too_many)


def rough_prices(patch: pytest.MonkeyPatch) -> None:
    """Prices that are a little too low pass."""
    patch.setattr(round_spec, "_LEAST_OF_COST", 1.0 - 1e-5)


def endless_patience(patch: pytest.MonkeyPatch) -> None:
    """Nobody minds how far ahead a job reaches."""
    patch.setattr(TimeLimits, "too_far", lambda *arguments: None)


def unread_tasks(patch: pytest.MonkeyPatch) -> None:
    """A trainer believes the terms of a job, and does not derive them from its task."""
    patch.setattr(study_request, "check_terms_of_task", lambda *arguments, **named: None)


def unread_terms(patch: pytest.MonkeyPatch) -> None:
    """A Compute node does not hold rounds to the terms of their job."""
    patch.setattr(announcing, "check_round_of_job", lambda *arguments, **named: None)


def powerless_owners(patch: pytest.MonkeyPatch) -> None:
    """A data holder does not ask its owner's policy."""
    patch.setattr(Policy, "refusal", lambda self, request: None)
    patch.setattr(Policy, "query_refusal", lambda self, query: None)


def uncapped_owners(patch: pytest.MonkeyPatch) -> None:
    """A data holder has a cap of its own program's choice."""
    patch.setattr(Policy, "cap", property(lambda self: Cap(epsilon=100.0, delta=1e-3)))


def forgetful_owners(patch: pytest.MonkeyPatch) -> None:
    """A data holder forgets what its clients have joined before."""
    patch.setattr(spending, "committed", lambda file: Balances())


def credulous_vaults(patch: pytest.MonkeyPatch) -> None:
    """A vault takes any document for its owner's word."""
    patch.setattr(approvals, "check_approval", lambda signed, key: None)


def hasty_vaults(patch: pytest.MonkeyPatch) -> None:
    """A vault takes one owner's approval for two."""
    patch.setattr(approvals, "owners_needed", lambda policy: 1)


def uncounted_rounds(patch: pytest.MonkeyPatch) -> None:
    """Whoever joined a job forgets what its earlier rounds cost."""
    patch.setattr(job_request, "compose", lambda costs: list(costs)[-1])


def steered_draws(patch: pytest.MonkeyPatch) -> None:
    """A data holder does not hold its draws against the seed."""
    patch.setattr(crowd_closings, "broken_draws", lambda draws, closing: ())


def forgotten_receipts(patch: pytest.MonkeyPatch) -> None:
    """A data holder does not look for what was acknowledged to it."""
    patch.setattr(crowd_closings, "broken_receipts", lambda receipts, closing: ())
    patch.setattr(crowd_closings, "_entry", lambda kept, instance: None)


def any_closing(patch: pytest.MonkeyPatch) -> None:
    """Whoever reads a closing does not hold it against its opening and request."""
    patch.setattr(crowd_trainer, "check_closing", lambda *arguments, **named: None)


CLOSINGS = [steered_draws, forgotten_receipts, any_closing]
"""Weaknesses of whoever judges a crowd job's trainer."""


def _unread(check: str, module: ModuleType | type = checks) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(module, check, lambda *arguments, **named: None)

    plant.__name__ = f"unread_{module.__name__}.{check}"
    return plant


UNREAD = [
    _unread("_check_request"),
    _unread("check_round_of_job", checks),
    _unread("check_charge", PartialSum),
    _unread("_check_totals"),
    _unread("_check_report"),
]
"""Readers of certificates that leave out one check."""
