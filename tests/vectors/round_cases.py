"""Vectors of a job's many rounds: of batches by the public rule, and with hidden participation.

The price of hidden participation is written out: a machine may find another last digit of it.
"""

from collections.abc import Iterator
from typing import Any, Final

from shoal_protocol.accounting import Cost
from shoal_protocol.documents import sign
from shoal_protocol.encoding import encode_clients
from shoal_protocol.mechanisms import DiscreteGaussianNoise
from shoal_protocol.rounds import RoundSpec
from tests.protocol import examples
from tests.protocol.hidden_rounds import CONSORTIUM, FIRST_HIDDEN, RATE, ROUNDS, first
from tests.vectors.round_operations import choose_batch

Case = tuple[str, str, dict[str, Any]]  # name, operation, inputs

PRICE: Final = 0.290655028
NOW: Final = "2026-03-01T12:00:00.000Z"
JOB: Final = "5e" * 32
KNOWN: Final = first(hidden=None, cost=Cost.gaussian(0.5))
FIRST: Final = KNOWN.model_copy(update={"hidden": FIRST_HIDDEN, "mu": PRICE})
LATER: Final = FIRST.model_copy(
    update={
        "number": 1,
        "hidden": FIRST_HIDDEN.paid_by(FIRST.digest),
        "mu": 0.0,
        "epsilon": 0.0,
    }
)


def signed(spec: RoundSpec, **changes: Any) -> str:
    """Return a spec as the trainer signs it, in hex."""
    body = spec.model_copy(update=changes)
    return sign(body, "trainer", examples.signing_key("trainer")).encode().hex()


def announced(spec: RoundSpec, **changes: Any) -> dict[str, Any]:
    """Return the inputs of a node that is told of a spec."""
    return {
        "document": signed(spec, **changes),
        "now": NOW,
        "manifest": CONSORTIUM.signed_manifest.encode().hex(),
        "roster": CONSORTIUM.roster.encode().hex(),
    }


def round_cases() -> Iterator[Case]:
    """Return all of them."""
    yield from batch_cases()
    yield from spec_cases()
    yield from prepaid_cases()
    for name, rate, drawn in (
        ("the largest number that says yes", 0.25, "ffffff3f"),
        ("one more, which says no", 0.25, "00000040"),
        ("little-endian", 0.25, "40000000"),
        ("the rarest yes", 2.0**-32, "00000000"),
        ("beside it, no", 2.0**-32, "01000000"),
    ):
        yield name, "toss_coin", {"rate": rate, "bytes": drawn}


def batch_cases() -> Iterator[Case]:
    """Follow a job's rounds: 5 of 12 clients in each, in 3 of 7 rounds at most."""
    everybody = [3, 5, 8, 9, 12, 20, 21, 22, 70_000, 70_001, 70_002, 2**31]
    base = {"job": JOB, "population": everybody, "enrolled": everybody, "batch": 5, "most": 3}
    rounds: list[list[int]] = []
    for number in range(7):
        inputs = base | {"rounds": list(rounds)}
        yield f"the batch of round {number}", "choose_batch", inputs
        rounds.append(choose_batch(inputs)["clients"])
    yield "no batch more: all had their share", "choose_batch", base | {"rounds": rounds}
    left = [client for client in everybody if client != rounds[1][0]]
    yield (
        "who has left is passed over",
        "choose_batch",
        base
        | {
            "rounds": rounds[:1],
            "enrolled": left,
        },
    )
    yield "too few are left", "choose_batch", base | {"rounds": [], "enrolled": everybody[:4]}
    yield "another job, another order", "choose_batch", base | {"job": "5f" * 32, "rounds": []}


def spec_cases() -> Iterator[Case]:
    """Announce the first round of a hidden job, a later one, and lies."""
    yield "a round of gradients is accepted", "accept_spec", announced(KNOWN)
    yield "a first hidden round is accepted", "accept_spec", announced(FIRST)
    yield "a later hidden round is accepted", "accept_spec", announced(LATER)
    less = DiscreteGaussianNoise(scale=FIRST.noise.scale / 1.001)
    for name, spec, changes in (
        ("a hidden round that costs nothing", FIRST, {"mu": 0.0, "epsilon": 0.0}),
        ("a hidden price for less noise", FIRST, {"noise": less}),
        ("a hidden price for a coin that falls more often", FIRST, {"hidden": more(rate=0.5)}),
        ("a hidden price for more rounds", FIRST, {"hidden": more(rounds=ROUNDS + 1)}),
        ("a known round at a hidden price", FIRST, {"hidden": None}),
        ("a first round that another one has paid", FIRST, {"hidden": LATER.hidden}),
        ("a later round that pays for all", LATER, {"hidden": FIRST_HIDDEN, "mu": PRICE}),
        ("a round beyond those that are paid for", LATER, {"number": ROUNDS}),
        ("a later round with a price", LATER, {"mu": PRICE, "epsilon": None}),
    ):
        yield name, "accept_spec", announced(spec, **changes)


def prepaid_cases() -> Iterator[Case]:
    """Hold later rounds against the first one that a node charged."""
    fewer = encode_clients(list(examples.POPULATION)[:-1])
    less = DiscreteGaussianNoise(scale=FIRST.noise.scale / 1.001)
    own = {"document": signed(LATER), "first": signed(FIRST), "earlier": 1}
    yield "a round that was paid for", "accept_prepaid", own
    yield "the last one that was", "accept_prepaid", own | {"earlier": ROUNDS - 1}
    yield "one more", "accept_prepaid", own | {"earlier": ROUNDS}
    for name, changes in {
        "it names another payer": {"hidden": FIRST_HIDDEN.paid_by("0" * 64)},
        "another coin than was paid for": {"hidden": more(rate=RATE / 2, paid=True)},
        "less noise than was paid for": {"noise": less},
        "of another job": {"job": "0" * 64},
    }.items():
        yield name, "accept_prepaid", own | {"document": signed(LATER, **changes)}
    small = FIRST.model_copy(
        update={"population": fewer, "population_size": FIRST.population_size - 1}
    )
    named = {"hidden": FIRST_HIDDEN.paid_by(small.digest)}
    yield (
        "a client that has not paid",
        "accept_prepaid",
        own
        | {
            "first": signed(small),
            "document": signed(LATER, **named),
        },
    )


def more(*, paid: bool = False, **changes: Any) -> Any:
    """Return other terms than those that the price is of."""
    terms = FIRST_HIDDEN.paid_by(FIRST.digest) if paid else FIRST_HIDDEN
    return terms.model_copy(update=changes)
