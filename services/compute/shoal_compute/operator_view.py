"""What a Compute node's console shows beside what all services have."""

from typing import Final

from shoal_compute.log_witness import LogWitness
from shoal_compute.metrics import Metrics
from shoal_compute.round_book import RoundBook
from shoal_compute.schema import ledger
from shoal_hosting.manifests.manifest_book import newest_with
from shoal_hosting.operators.view import Table, View, in_words, labelled, ledger_in_words
from shoal_hosting.service import Resources

_MOST_ROUNDS: Final = 50
_DIGITS: Final = 12  # enough to tell rounds apart
_GOSSIP: Final = {
    "exchanged": "messages answered",
    "unreachable": "messages without an answer",
    "document_new": "documents that were new here",
    "document_refused": "documents refused",
    "document_evidence": "documents that contradict others of their signer",
}


class OperatorView:
    """Rounds in counts, the ledger's head, and who else is asked."""

    def __init__(
        self, resources: Resources, rounds: RoundBook, metrics: Metrics, witness: LogWitness
    ) -> None:
        self._own, self._rounds, self._metrics = resources, rounds, metrics
        self._witness = witness

    async def look(self) -> View:
        """Return how the node stands.

        Raises:
            StorageUnavailable, LedgerBroken
        """
        phases = labelled(self._own.registry, "shoal_compute_rounds", "phase")
        gossip = labelled(self._own.registry, "shoal_compute_gossip_total", "outcome")
        live = list(self._rounds.live.values())[-_MOST_ROUNDS:]
        manifest = newest_with(self._own.book, self._own.name).manifest
        return View(
            facts=await self._own.storage.run(ledger_in_words, ledger)
            | await self._witness.facts(),
            parties=(*manifest.compute_nodes, manifest.aggregator),
            rates={"Shares stored": self._metrics.shares_a_second},
            tables=(
                Table(
                    "Rounds by phase",
                    ("Phase", "Rounds"),
                    [(phase, int(count)) for phase, count in phases.items()],
                    "No round was announced yet.",
                ),
                Table(
                    "Rounds with work left",
                    ("Round", "Phase", "Opened", "Asked here", "Held"),
                    [
                        (
                            each.id[:_DIGITS],
                            each.phase.value,
                            in_words(each.spec.body.opened_at),
                            len(each.intake.asked_here),
                            self._rounds.held(each),
                        )
                        for each in reversed(live)
                    ],
                    "None.",
                ),
                Table(
                    "Gossip with the other nodes",
                    ("What", "Times"),
                    [
                        (what, int(gossip[outcome]))
                        for outcome, what in _GOSSIP.items()
                        if outcome in gossip
                    ],
                    "None since it started: nodes speak once a round is frozen.",
                ),
            ),
        )
