"""Summarises many rounds of a certificate in groups, so that nobody need read hundreds.

Rounds are as `certificate_views.as_json` returns them.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.epsilons import epsilon_at

FEW_ROUNDS: Final = 4  # are shown one by one

Said = dict[str, Any]


def released(said: Said) -> Iterator[str]:
    """Say what the released rounds asked, of whom, with what noise and at what price for each."""
    for group in alike(said["rounds"], _terms):
        one = group[0]
        cohorts = span([each["cohort_size"] for each in group])
        yield (
            f"{_counted(group)}: {one['query'].replace('_', ' ')}, {one['dimension']:,} numbers: "
            f"the sum over {cohorts} of the {one['population_size']:,} clients that it asks, "
            f"with their noise. {noise(one)} {_price(one, said['privacy']['delta'])}"
        )
    asked = said["participations"]
    yield (
        f"Each of the {said['population_size']:,} clients who joined was asked in "
        f"{span([asked['least'], asked['most']])} of all rounds, the lost ones too, and pays for "
        "those alone."
    )


def lost(said: Said) -> Iterator[str]:
    """Say which rounds were lost, and why."""
    for group in alike(said["lost_rounds"], lambda each: each["reason"]):
        yield f"{_counted(group)}: {group[0]['reason']}."


def ledgers(rounds: Iterable[Said]) -> Iterator[str]:
    """Say in which entries of which ledger the price of many rounds is kept."""
    by_ledger = defaultdict[str, list[Said]](list)
    for each in rounds:
        for entry in each["ledger_entries"]:
            by_ledger[entry["ledger"]].append(entry)
    for name, entries in by_ledger.items():
        last = entries[-1]
        yield (
            f"{name}: {len(entries):,} entries, {_runs([each['number'] for each in entries])}; "
            f"the last is {last['digest']} and stands for all before it"
        )


def noise(of: Said) -> str:
    """Say how much noise a round has, and what it is counted on in spite of."""
    mechanism, scale = of["noise"]["mechanism"].replace("_", " "), of["noise"]["scale"]
    whose = "from each client" if of["noise"]["mechanism"] == "discrete_gaussian" else "in all"
    dropouts = of["population_size"] - of["minimum_cohort"]
    return (
        f"Noise: {mechanism}, of scale {scale:,.4g} {whose}, in lattice units. It is counted on "
        f"even if {dropouts:,} clients are missing and {of['colluders']:,} of the others collude."
    )


def alike(rounds: Iterable[Said], trait: Callable[[Said], Hashable]) -> list[list[Said]]:
    """Return the rounds in groups of those with one trait, in order of their first ones."""
    groups = defaultdict[Hashable, list[Said]](list)
    for each in rounds:
        groups[trait(each)].append(each)
    return list(groups.values())


def span(sizes: Sequence[int]) -> str:
    """Return "3" or "3 to 7"."""
    least, most = min(sizes), max(sizes)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _terms(of: Said) -> Hashable:
    names = ("query", "dimension", "population_size", "minimum_cohort", "colluders", "mu")
    return (*(of[name] for name in names), of["epsilon"], *sorted(of["noise"].items()))


def _counted(group: Sequence[Said]) -> str:
    count = "1 round" if len(group) == 1 else f"{len(group):,} rounds"
    return f"{count} (number {_runs([each['number'] for each in group])})"


def _price(of: Said, delta: float) -> str:
    epsilon = epsilon_at(delta, Cost.stated(of["mu"], of["epsilon"]))
    at = f" at delta {delta:g}" if delta else ", with delta 0"
    return f"By itself each costs a client that it asks epsilon {epsilon:.4g}{at}."


def _runs(numbers: Sequence[int]) -> str:
    """Return "0 to 11, 13" for ascending numbers 0, 1, ... 11 and 13."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(span(run) for run in runs)
