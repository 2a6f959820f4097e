"""Shows what an audit measured, and says what about it is not as it should be."""

from typing import Any, Final

from audit.running import Outcome

POWER: Final = 0.5
"""What share of an honest round's claim the audit must prove, lest it be blind."""


def table(outcomes: list[Outcome]) -> str:
    """Return a Markdown table: each adversary in honest rounds, the strongest in faulty ones."""
    rows = [
        (outcome.scenario.name, adversary, outcome)
        for outcome in outcomes
        for adversary in outcome.measured
        if adversary == outcome.scenario.worst_adversary or not outcome.scenario.is_faulty
    ]
    return "\n".join(
        [
            "| round | adversary | runs | claim | at least | at least, Gaussian | true | |",
            "|---|---|---|---|---|---|---|---|",
            *(
                f"| {name} | {adversary} | {_figures(outcome, adversary)} |"
                for name, adversary, outcome in rows
            ),
        ]
    )


def _figures(outcome: Outcome, adversary: str) -> str:
    scenario, measured = outcome.scenario, outcome.measured[adversary]
    true = scenario.true_epsilon(adversary)
    above = "caught" if scenario.is_faulty else "ABOVE THE CLAIM"
    return " | ".join(
        [
            f"{scenario.runs:,}",
            f"{measured.claim.epsilon:.2f}",
            f"{measured.bounds.epsilon:.2f}",
            f"{measured.implied_epsilon:.2f}" if measured.claim.delta else "-",
            "-" if true is None else f"{true:.2f}",
            above if measured.refutes_the_claim else "below the claim",
        ]
    )


def summary(outcomes: list[Outcome], *, failure: float, quick: bool) -> dict[str, Any]:
    """Return everything that was measured, for JSON; `quick` is as in `problems`."""
    return {
        "failure_probability_of_each_bound": failure,
        "scenarios": [
            {
                "name": outcome.scenario.name,
                "fault": outcome.scenario.is_faulty,
                "runs_in_each_world": outcome.scenario.runs,
                "delta": outcome.worst.claim.delta,
                "measured": {
                    str(adversary): {
                        "claimed_epsilon": measured.claim.epsilon,
                        "claimed_mu": measured.claim.mu,
                        "epsilon_any_mechanism": measured.bounds.epsilon,
                        "epsilon_gaussian": measured.implied_epsilon,
                        "mu": measured.bounds.mu,
                        "true_epsilon": outcome.scenario.true_epsilon(adversary),
                        "refutes_the_claim": measured.refutes_the_claim,
                    }
                    for adversary, measured in outcome.measured.items()
                },
            }
            for outcome in outcomes
        ],
        "problems": problems(outcomes, quick=quick),
    }


def problems(outcomes: list[Outcome], *, quick: bool) -> list[str]:
    """Return, in words, each finding that must not be.

    An honest round's claim must show by the bound that holds whatever the mechanism is; in a
    `quick` audit, whose runs are too few for that, by either bound.
    """
    found = []
    for outcome in outcomes:
        name, worst = outcome.scenario.name, outcome.worst
        if outcome.scenario.is_faulty:
            if not worst.refutes_the_claim:
                found.append(f"{name}: the fault was not caught")
            continue
        found += [
            f"{name}: costs more than it claims, seen by: {adversary}"
            for adversary, measured in outcome.measured.items()
            if measured.refutes_the_claim
        ]
        if (worst.epsilon if quick else worst.bounds.epsilon) < POWER * worst.claim.epsilon:
            found.append(f"{name}: the audit proves less than half of the claim, so it is blind")
    return found
