"""Accounts for every round that was ever announced: how it ended, and where each share is.

What the parties signed is verified here once more, by the trainer's own rules. What was
acknowledged is read where it was received: in the data holders' own state.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyroaring import BitMap

from shoal_protocol.rounds.attestations import (
    Abandonment,
    Holdings,
    Result,
    Vote,
    cohort_digest,
    cohort_of,
)
from shoal_protocol.rounds.outcomes import (
    verified_outcome,
)
from shoal_protocol.rounds.round_spec import AskedHolders, RoundSpec
from shoal_protocol.sharing.envelope import receipt_query
from shoal_protocol.wire.documents import decode, from_json
from shoal_protocol.wire.encoding import decode_clients
from tests.containers.compose import Compose
from tests.containers.study import HOSPITALS, NODES, Study
from tests.containers.waiting import until

ROW: Final = "row of the ledger"
"""The property of a test that holds what it measured, shown at the end of the tests' output."""

ENDED: Final = ("published", "abandoned")
_OUTBOX: Final = """
import json, sqlite3
state = sqlite3.connect("/data/holder.sqlite")
sent = state.execute(
    "SELECT about, node, hex(digest) FROM outbox"
    " WHERE (kind, outcome) = ('envelope', 'acknowledged')"
).fetchall()
paid = state.execute(
    "SELECT rounds.round, population FROM ledger"
    " JOIN rounds ON (ledger.job, place) = (rounds.job, rounds.number)"
).fetchall()
print(json.dumps({"sent": sent, "paid": paid}))
"""


@dataclass(frozen=True)
class Round:
    """What became of one round, in documents that were verified, and in the parties' own words."""

    spec: RoundSpec
    asked: AskedHolders
    result: Result | None
    abandonment: Abandonment | None
    holdings: Mapping[str, Holdings]  # by node, of those that signed any
    votes: Mapping[str, Vote]  # likewise


@dataclass(frozen=True)
class Outbox:
    """What one data holder's state says of all its rounds."""

    acknowledged: Mapping[tuple[str, str], Mapping[int, bytes]]
    """The digests of envelopes that were acknowledged, by data holder, by (round, node)."""
    paid: Counter[tuple[str, int]]  # debits, by (round, client)


@dataclass
class Ledger:
    """The sums of it all, and in `wrong` whatever does not fit.

    Shares that were acknowledged are counted in a result, left out of one because a node whose
    holdings gave the cohort lacked another share of that client, or in a round that released
    nothing. `lost` are those that their node does not hold; `double` are shares or payments that
    are there twice.
    """

    rounds: int = 0
    published: int = 0
    abandoned: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    counted: int = 0
    left_out: int = 0
    unreleased: int = 0
    lost: int = 0
    double: int = 0
    wrong: list[str] = field(default_factory=list)

    def row(self, faults: Counter[str]) -> str:
        """Return the ledger in one line, after the faults of each kind."""
        injected = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items()))
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(self.abandoned.items()))
        return (
            f"{faults.total()} faults ({injected}); {self.rounds} rounds: "
            f"{self.published} published, {self.abandoned.total()} abandoned ({reasons}); "
            f"{self.acknowledged} shares acknowledged: {self.counted} counted, {self.left_out} "
            f"left out, {self.unreleased} in abandoned rounds, {self.lost} lost, {self.double} "
            "double-counted"
        )


def read_rounds(study: Study) -> list[Round]:
    """Wait until each round has ended wherever it is known, and return them all.

    Raises:
        InVain: one of them does not end.
        ProtocolError: a document does not verify.
    """
    charges = [entry for entry in study.charges() if entry["kind"] == "charge"]
    return [_read_round(study, entry["round"]) for entry in charges]


def _read_round(study: Study, round_id: str) -> Round:
    states: dict[str, Mapping[str, Any]] = {}

    def ended() -> bool:
        states.update({node: study.at_node(node, round_id) for node in NODES})
        known = [state for state in states.values() if state]
        return bool(known) and all(state["phase"] in ENDED for state in known)

    until(f"round {round_id} ended everywhere", ended)
    known = {node: state for node, state in states.items() if state}
    spec_bytes = study.ask(next(iter(known)), f"/v1/rounds/{round_id}/spec").body.encode()
    spec = decode(spec_bytes, RoundSpec)
    study.consortium.verify(spec)
    holdings: dict[str, Holdings] = {}
    votes: dict[str, Vote] = {}
    for node in known:
        for document in study.ask(node, f"/v1/rounds/{round_id}/documents").json()["documents"]:
            signed = from_json(document, Holdings, Vote, Abandonment)
            study.consortium.verify(signed)
            if isinstance(signed.body, Holdings):
                holdings[signed.body.node] = signed.body
            elif isinstance(signed.body, Vote):
                votes[signed.body.node] = signed.body
    outcome, end = study.ask("aggregator", f"/v1/rounds/{round_id}/outcome"), None
    if outcome.status == 200:
        signed, _ = verified_outcome(outcome.body.encode(), spec.body, study.consortium)
        end = signed.body
    return Round(
        spec=spec.body,
        asked=AskedHolders.of(spec.body.clients(), study.consortium.roster),
        result=end if isinstance(end, Result) else None,
        abandonment=end if isinstance(end, Abandonment) else None,
        holdings=holdings,
        votes=votes,
    )


def read_outbox(compose: Compose, hospital: str) -> Outbox:
    """Return what the state of a data holder says whose agent has stopped: it was locked."""
    command = ("run", "--rm", "--no-deps", "--no-TTY", f"{hospital}-vault", "python", "-c", _OUTBOX)
    state = json.loads(compose(*command))
    acknowledged: dict[tuple[str, str], dict[int, bytes]] = defaultdict(dict)
    holder = HOSPITALS.index(hospital)  # they were enrolled in this order
    for round_id, node, digest in state["sent"]:
        acknowledged[round_id, NODES[node]][holder] = bytes.fromhex(digest)
    paid = Counter(
        (round_id, client)
        for round_id, population in state["paid"]
        for client in decode_clients(population)
    )
    return Outbox(acknowledged, paid)


def lost_shares(study: Study, outboxes: Iterable[Outbox]) -> int:
    """Ask the nodes for everything that they acknowledged, and count what they do not hold."""
    lost = 0
    for outbox in outboxes:
        for (round_id, node), digests in outbox.acknowledged.items():
            path = f"/v1/rounds/{round_id}/shares/stored"
            for holder, digest in digests.items():
                query = receipt_query(holder, digest)
                answer = study.ask(node, path, method="POST", content=query).json()
                lost += not answer["stored"]
    return lost


def reckon(rounds: Iterable[Round], outboxes: Iterable[Outbox], *, lost: int) -> Ledger:
    """Hold the rounds against what was acknowledged, of which `lost` shares are gone."""
    ledger, boxes = Ledger(lost=lost), list(outboxes)
    for each in rounds:
        ledger.rounds += 1
        cohort = _ending(each, ledger)
        for node in each.spec.compute_nodes:
            sent = [box.acknowledged.get((each.spec.digest, node), {}) for box in boxes]
            acknowledged = BitMap(holder for holders in sent for holder in holders)
            ledger.double += sum(map(len, sent)) - len(acknowledged)
            ledger.acknowledged += len(acknowledged)
            if node in each.holdings and not acknowledged <= _held(each, node):
                ledger.wrong.append(f"{node} attests fewer shares than it acknowledged")
            if cohort is None:
                ledger.unreleased += len(acknowledged)
            else:
                ledger.counted += len(acknowledged & cohort)
                ledger.left_out += len(acknowledged - cohort)
        if cohort is not None:
            ledger.double += len(cohort - each.asked.holders)
    paid = sum((box.paid for box in boxes), Counter[tuple[str, int]]())
    ledger.double += sum(count - 1 for count in paid.values())
    return ledger


def _ending(each: Round, ledger: Ledger) -> BitMap | None:
    """Enter how a round ended, and return the cohort of its result if it has one."""
    name = f"round {each.spec.digest[:8]}"
    if (each.result is None) == (each.abandonment is None):
        ledger.wrong.append(f"{name} has not one end, but a result and an abandonment, or neither")
    if each.result is None:
        ledger.abandoned[each.abandonment.reason.code if each.abandonment else "nobody"] += 1
        return None
    ledger.published += 1
    votes = [vote for vote in each.votes.values() if vote.cohort == each.result.cohort]
    if len(votes) < each.spec.threshold:
        ledger.wrong.append(f"{name} is the result of {len(votes)} votes")
        return None
    asked = each.asked.holders
    cohort = cohort_of(each.holdings[node].held(asked) for node in votes[0].nodes)
    clients = each.asked.count(cohort.holders)
    if cohort_digest(each.spec.digest, cohort) != each.result.cohort:
        ledger.wrong.append(f"{name} has a cohort that its holdings do not give")
    if clients != each.result.cohort_size:
        ledger.wrong.append(f"{name} counts {each.result.cohort_size} clients, not {clients}")
    return cohort.holders


def _held(each: Round, node: str) -> BitMap:
    return each.holdings[node].held(each.asked.holders).holders
