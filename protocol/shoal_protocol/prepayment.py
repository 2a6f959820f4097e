"""Whether a round of hidden participation was paid for by the job's first one, and is as promised.

Each party holds a round against the first one that it charged itself, or against the job that it
joined; it believes no trainer.
"""

from typing import Final

from shoal_protocol.accounting import Cap
from shoal_protocol.errors import RefusedSpec
from shoal_protocol.round_spec import RoundSpec

_MOST_OF_MU: Final = 1.0 + 1e-11  # for rounding; what was charged is a relative 1e-6 above it


def check_prepaid(spec: RoundSpec, first: RoundSpec | None, *, earlier: int) -> None:
    """Refuse a round that names another one as the one that paid for it, unless that one did.

    `first` is the round that it names, which was charged and never given back, None if there is no
    such; `earlier` is how many rounds of the job there were, the first and lost ones too.

    Raises:
        RefusedSpec: the detail says why.
    """
    hidden = spec.hidden
    if hidden is None or hidden.prepaid_by is None:
        return
    if first is None or first.digest != hidden.prepaid_by or first.job != spec.job:
        raise RefusedSpec("the round that it says has paid for it was not charged to this job")
    if first.hidden != hidden.model_copy(update={"prepaid_by": None}):
        raise RefusedSpec("the round that it names has not paid for this rate and so many rounds")
    if earlier >= hidden.rounds:
        raise RefusedSpec("the rounds that were paid for are used up")
    if not spec.clients().issubset(first.clients()):
        raise RefusedSpec("a client of its population has not paid for it")
    if spec.known_cost.mu > first.known_cost.mu * _MOST_OF_MU:
        raise RefusedSpec("it has less noise than was paid for")


def check_promised(spec: RoundSpec, *, rate: float | None, rounds: int, cap: Cap) -> None:
    """Refuse a round that hides participation otherwise than its job said, or at a higher price.

    The job has so many `rounds`, and `rate` is None where it hides nothing. Who knows the job can
    check this of any round, whether or not the first was seen.

    Raises:
        RefusedSpec: the detail says why.
    """
    hidden = spec.hidden
    if hidden is None and rate is None:
        return
    if hidden is None or (hidden.rate, hidden.rounds) != (rate, rounds):
        raise RefusedSpec("hidden participation is not as the job has it")
    try:
        whole = hidden.whole(spec.known_cost)
    except ValueError as error:
        raise RefusedSpec("so many rounds with so little noise have no price") from error
    if not cap.allows(whole):
        raise RefusedSpec("rounds with so little noise together cost more than the job may")
