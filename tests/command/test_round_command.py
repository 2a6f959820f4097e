"""`shoal round account` asks everybody, believes signatures only, and names no client unasked."""

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import Result

from shoal.jobs import round_documents
from shoal_command_groups import round as command
from shoal_protocol.rounds.attestations import StoredAnswers
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import UnknownManifest
from tests.command import running
from tests.protocol.test_round_audit import NODES, SIGNED_SPEC, holdings, published
from tests.world import examples
from tests.world.certified import successor
from tests.world.examples import CONSORTIUM, SPEC

MIXED = StoredAnswers.of(
    (client, examples.answer_id(client, "another" if client == 3 else "first"))
    for client in range(1, 12)
)


class Parties:
    """What each party shows, by its name and the end of the path."""

    def __init__(self, documents: list[Signed[Any]]) -> None:
        by = {name: [each for each in documents if each.signer == name] for name in NODES}
        self.shown: dict[tuple[str, str], list[Any]] = {}
        for name in NODES:
            own = [each.to_json() for each in by[name] if each.body.kind != "partial_sum"]
            self.shown[name, "documents"] = own
            self.shown[name, "spec"] = [SIGNED_SPEC.to_json()]
        self.shown["aggregator", "outcome"] = [
            each.to_json() for each in documents if each.body.kind in ("result", "partial_sum")
        ]

    async def ask(self, party: ServiceParty, path: str, notice: object) -> list[Any]:
        assert path.startswith(f"/v1/rounds/{SPEC.digest}/")
        return self.shown.get((party.name, path.rpartition("/")[2]), [])


@pytest.fixture
def parties(monkeypatch: pytest.MonkeyPatch) -> Parties:
    made = Parties(published([examples.held(range(12)), MIXED, examples.held(range(12))]))
    book = book_of(CONSORTIUM)
    monkeypatch.setattr(command, "open_book", lambda party, consortium: book)
    monkeypatch.setattr(round_documents, "ask", made.ask)
    return made


def book_of(*versions: Consortium) -> SimpleNamespace:
    found = {each.digest: each for each in versions}

    def get(digest: str) -> Consortium:
        if digest not in found:
            raise UnknownManifest
        return found[digest]

    return SimpleNamespace(current=versions[-1], versions=versions, get=get)


def test_parties_of_the_round_that_others_replaced_since_are_asked_too(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        node.model_dump() | {"name": f"{node.name}-new"}
        for node in CONSORTIUM.manifest.compute_nodes
    ]
    aggregator = CONSORTIUM.manifest.aggregator.model_dump() | {"name": "aggregator-new"}
    book = book_of(CONSORTIUM, successor(CONSORTIUM, compute_nodes=nodes, aggregator=aggregator))
    monkeypatch.setattr(command, "open_book", lambda party, consortium: book)
    shown = run()
    assert shown.exit_code == 0, shown.output
    assert "The round is published." in shown.stdout
    assert "10 │ in the cohort" in shown.stdout


def run(*arguments: str, round_id: str = SPEC.digest) -> Result:
    who = ("--party", "p", "--consortium", "c")
    return running.run("round", "account", round_id, *who, *arguments)


def test_what_does_not_verify_is_counted_and_what_is_no_document_is_passed_over(
    parties: Parties,
) -> None:
    forged = holdings("compute-0", MIXED).to_json() | {"signature": "00" * 64}
    parties.shown["compute-2", "documents"] += [forged, {"nonsense": 1}]
    shown = run()
    assert "1 documents do not verify" in shown.stdout
    assert "compute-2 shows a document that is none" in shown.stderr
