"""Runs attacks one after another and keeps what came of them; it prints nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, Verdict, not_carried_out
from shoal_redteam.target import Target

Progress = Callable[[Attack, int], None]
"""Told that an attack begins, and how many went before."""


@dataclass
class Report:
    """All findings, by attack in the order in which they ran."""

    findings: dict[str, list[Finding]] = field(default_factory=dict)

    def count(self, verdict: Verdict) -> int:
        """Return how many tries ended so."""
        return sum(each.verdict is verdict for found in self.findings.values() for each in found)

    @property
    def exit_status(self) -> int:
        """Return 1 if an attack got through, else 2 if one could not be carried out, else 0."""
        if self.count(Verdict.GOT_THROUGH):
            return 1
        return 2 if self.count(Verdict.NOT_CARRIED_OUT) or not self.findings else 0


async def run(
    attacks: Sequence[Attack], target: Target, *, progress: Progress = lambda attack, before: None
) -> Report:
    """Run the attacks; one that cannot be carried out does not keep the others from running."""
    report = Report()
    for before, attack in enumerate(attacks):
        progress(attack, before)
        found = report.findings.setdefault(attack.name, [])
        try:
            async for each in attack.run(target):
                found.append(each)
        except CannotAttack as error:
            found.append(not_carried_out(attack.tries, str(error)))
        except Exception as error:  # noqa: BLE001 -- a fault of one attack loses no other's findings
            found.append(not_carried_out(attack.tries, f"it failed: {type(error).__name__}"))
        if not found:
            found.append(not_carried_out(attack.tries, "it tried nothing"))
    return report
