"""`shoal journal` on journals of honest nodes, and of nodes that were set back or lie."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal_command_groups import journal as command
from shoal_consortium import consortium_files, journal_reading
from shoal_kit.peers.exchange import Reply, Unavailable
from shoal_protocol.certificates.release_certificate import ReleaseCertificate
from shoal_protocol.journal import GENESIS, EntryPlace, Link, Shown, content_hash
from shoal_protocol.keeping import Loss
from shoal_protocol.rounds.attestations import CHARGE, charge_body
from shoal_protocol.trust.manifest import Consortium, Manifest, ServiceParty
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import format_time
from tests.command.running import refused, shoal, words
from tests.protocol.test_succession import NODES, NOW, following, replaced
from tests.world import examples
from tests.world.certified import under
from tests.world.journals import Made, countersigned, journal, shown, total, version

Journals = dict[str, list[Shown] | None]
SECOND = following()
OTHER = following(policy=NOW.manifest.policy.model_copy(update={"minimum_cohort": 11}))
ONE, TWO = total(NOW, "a" * 64), total(NOW, "b" * 64)
SECOND_SIGNED, OTHER_SIGNED = version(NOW, SECOND.body), version(NOW, OTHER.body)


def of_all(*made: Made | None, **others: list[Shown] | None) -> Journals:
    """Return journals with these statements, and other journals of nodes by name; None: silent."""
    honest: Journals = {node: journal(node, *made) for node in NODES}
    return honest | {name.replace("_", "-"): each for name, each in others.items()}


@pytest.fixture
def consortium(tmp_path: Path) -> Path:
    """A directory with the first version alone."""
    consortium_files.create(tmp_path / "consortium", NOW.signed_manifest, NOW.roster)
    return tmp_path / "consortium"


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have nodes show these journals."""

    def shown(journals: Journals) -> None:
        def read(party: ServiceParty) -> Iterable[Shown]:
            entries = journals[party.name]
            if entries is None:
                raise Unavailable("nobody answers")
            return entries

        monkeypatch.setattr(command, "from_nodes", lambda: read)

    return shown


def add(consortium: Path, signed: Signed[Manifest], journals: Journals) -> None:
    """Add a version with the nodes' statements to the directory."""
    version = consortium_files.add_version(consortium, signed, NOW.roster)
    both = countersigned(signed, [each or [] for each in journals.values()])
    assert both.countersignatures is not None
    consortium_files.add_countersignatures(consortium, version, both.countersignatures)


def contradiction(*arguments: object) -> tuple[str, list[dict[str, Any]]]:
    """Expect a contradiction; return what is warned of, and the findings in JSON."""
    result = shoal("journal", "verify", *arguments, "--json", status=7)
    return result.stderr, json.loads(result.stdout)["findings"]


def test_journals_that_hold_are_said_to_hold(consortium: Path, show: Any) -> None:
    journals = of_all(ONE, None, SECOND_SIGNED)
    show(journals)
    add(consortium, SECOND, journals)
    said = words(shoal("journal", "verify", consortium))
    assert "compute-2: 3 entries, 3 of them new to the copy; the chain holds." in said
    assert f"Version 2 of the manifest is signed in the journals of {', '.join(NODES)}." in said
    assert "1 of the Compute nodes must lie" in said
    told = json.loads(shoal("journal", "verify", consortium, "--json").stdout)
    assert [each["entries"] for each in told["journals"]] == [3, 3, 3]
    assert told["findings"] == []
    assert told["versions"][1]["signed_by"] == NODES


def test_R7_a_loss_that_a_node_states_contradicts_nothing(consortium: Path, show: Any) -> None:
    def loss(node: str, entry: Link) -> Loss:
        return Loss(
            manifest=NOW.digest,
            entry=entry,
            service=node,
            lost=EntryPlace(epoch=entry.epoch, number=9),
            sequence=2,
            at=examples.OPENED_AT,
        )

    show(of_all(ONE, loss, TWO))
    assert json.loads(shoal("journal", "verify", consortium, "--json").stdout)["findings"] == []


def after_loss(node: str, kept: list[Shown], lost: EntryPlace) -> list[Shown]:
    """Return a journal that was set back to the entries `kept`, and its loss accepted."""
    link = Link(
        epoch=f"2-{'7c' * 16}",
        number=len(kept) + 1,
        previous=kept[-1].hash if kept else GENESIS,
    )
    loss = Loss(
        manifest=NOW.digest,
        entry=link,
        service=node,
        lost=EntryPlace(epoch=lost.epoch, number=lost.number),
        sequence=2,
        at=examples.OPENED_AT,
    )
    return [*kept, shown(node, link, loss)]


LOST = f"a loss was accepted at {format_time(examples.OPENED_AT)}"


def test_R7_an_accepted_loss_explains_what_a_copy_has_and_the_journal_lacks(
    consortium: Path, show: Any, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    look = ("journal", "verify", consortium, "--copy", copy)
    whole = journal(NODES[1], None, ONE, TWO)
    show(of_all(None, ONE, TWO))
    shoal(*look)
    back = after_loss(NODES[1], whole[:1], whole[2])
    show(of_all(None, ONE, TWO, compute_1=back))
    told = shoal(*look)
    assert "compute-1 shows a forked journal: entry 2 was another one before" in told.stderr
    assert LOST in told.stderr
    assert "No contradictions." in words(told)
    assert "before: " not in shoal(*look).stderr  # once
    # what the node signed before the loss is still compared with what it signs later
    other = total(NOW, "a" * 64, report="9" * 64)
    link = Link(epoch=back[1].epoch, number=3, previous=back[1].hash)
    again = [*back, shown(NODES[1], link, other(NODES[1], link))]
    show(of_all(None, ONE, TWO, compute_1=again))
    warned, _ = contradiction("--copy", copy, consortium)
    assert "compute-1 signed two statements of kind job_total" in warned


def test_R7_a_loss_explains_no_entry_before_it_or_after_what_was_lost(
    consortium: Path, show: Any, tmp_path: Path
) -> None:
    whole = journal(NODES[1], None, ONE, TWO)
    show(of_all(None, ONE, TWO))
    shoal("journal", "verify", consortium, "--copy", tmp_path / "copy")
    forked = after_loss(NODES[1], journal(NODES[1], TWO), whole[2])
    too_little = after_loss(NODES[1], whole[:1], whole[0])
    for lie in (forked, too_little):
        show(of_all(None, ONE, TWO, compute_1=lie))
        warned, _ = contradiction("--copy", tmp_path / "copy", consortium)
        assert "compute-1 shows a forked journal" in warned
        assert LOST not in warned


def test_a_version_that_the_directory_lacks_is_told(consortium: Path, show: Any) -> None:
    show(of_all(SECOND_SIGNED))
    said = words(shoal("journal", "verify", consortium))
    assert f"Version 2 of the manifest, digest {SECOND.digest}, is signed by" in said
    assert "the directory ends with version 1" in said


def test_another_version_than_that_of_the_directory_is_found(consortium: Path, show: Any) -> None:
    journals = of_all(SECOND_SIGNED, compute_2=journal(NODES[2], OTHER_SIGNED))
    show(journals)
    add(consortium, SECOND, journals)
    warned, [finding] = contradiction(consortium)
    assert "authority and compute-2 signed two versions of the manifest with the number 2" in warned
    kept, shown = finding["documents"]
    assert shown["signer"] == "compute-2" and shown["body"]["following"] == OTHER.digest
    assert kept == SECOND.to_json()


def test_an_emergency_may_take_the_place_of_a_version_that_nodes_signed(
    consortium: Path, show: Any
) -> None:
    nodes = replaced(2)
    emergency = following(compute_nodes=nodes, emergency="two sites burnt")
    consortium_files.add_version(consortium, emergency, NOW.roster)
    journals: Journals = {each.name: [] for each in nodes}
    show(journals | {"compute-0": journal(NODES[0], SECOND_SIGNED)})
    shoal("journal", "verify", consortium)


def test_two_new_versions_of_one_number_are_found_across_nodes(consortium: Path, show: Any) -> None:
    show(of_all(SECOND_SIGNED, compute_1=journal(NODES[1], OTHER_SIGNED)))
    warned, [finding] = contradiction(consortium)
    assert "compute-0 and compute-1 signed two versions of the manifest with the number 2" in warned
    followed = {each["body"]["following"] for each in finding["documents"]}
    assert followed == {SECOND.digest, OTHER.digest}


def test_two_statements_of_one_subject_are_evidence_with_both_documents(
    consortium: Path, show: Any, tmp_path: Path
) -> None:
    again = total(NOW, "a" * 64, report="9" * 64)
    show(of_all(ONE, compute_1=journal(NODES[1], ONE, again)))
    warned, findings = contradiction(consortium, "--copy", tmp_path / "copy")
    assert f"compute-1 signed two statements of kind job_total about {'a' * 64}" in warned
    first, second = findings[0]["documents"]
    assert (first["signer"], second["signer"]) == ("compute-1", "compute-1")
    assert {first["body"]["report"], second["body"]["report"]} == {"1" * 64, "9" * 64}
    kept = [json.loads(each.read_bytes()) for each in (tmp_path / "copy/evidence").iterdir()]
    assert findings[0] in kept
    show(of_all(ONE, compute_1=journal(NODES[1], ONE)))
    shoal("journal", "verify", consortium)


def test_a_statement_beside_a_version_that_no_journal_has_is_found(
    consortium: Path, show: Any
) -> None:
    add(consortium, SECOND, of_all(SECOND_SIGNED))
    show(of_all(ONE, SECOND_SIGNED))  # a second entry of the same subject
    _, findings = contradiction(consortium)
    assert len(findings) == 3 * 2  # each node: one subject twice, and one place twice


def test_totals_for_two_reports_are_found(consortium: Path, show: Any) -> None:
    other = total(NOW, "a" * 64, report="9" * 64)
    show(of_all(ONE, compute_1=journal(NODES[1], other)))
    warned, [finding] = contradiction(consortium)
    assert f"compute-0 and compute-1 signed two reports of job {'a' * 64} in their totals" in warned
    assert {each["signer"] for each in finding["documents"]} == {"compute-0", "compute-1"}


def test_what_is_new_since_the_last_time_is_counted(
    consortium: Path, show: Any, tmp_path: Path
) -> None:
    look = ("journal", "verify", consortium, "--copy", tmp_path / "copy")
    show(of_all(ONE))
    assert "1 entries, 1 of them new" in words(shoal(*look))
    show(of_all(ONE, TWO, None))
    assert "3 entries, 2 of them new" in words(shoal(*look))
    assert "3 entries, 0 of them new" in words(shoal(*look))


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ((ONE,), "compute-1 shows a journal that was rolled back: it has 1 of the 2 entries"),
        ((), "compute-1 shows a journal that was rolled back: it has 0 of the 2 entries"),
        ((ONE, None, TWO), "compute-1 shows a forked journal: entry 2 was another one before"),
        ((TWO, ONE), "compute-1 shows a forked journal: entry 1 was another one before"),
    ],
)
def test_a_journal_that_was_rolled_back_or_forked_is_named(
    consortium: Path, show: Any, tmp_path: Path, now: tuple[Made | None, ...], said: str
) -> None:
    copy = tmp_path / "copy"
    show(of_all(ONE, TWO))
    shoal("journal", "verify", consortium, "--copy", copy)
    before = (copy / "compute-1.jsonl").read_bytes()
    show(of_all(ONE, TWO, None, compute_1=journal(NODES[1], *now)))
    for look in ("--copy", "--against"):
        warned, findings = contradiction(consortium, look, copy)
        assert said in warned
        assert any(each["what"].startswith(said) for each in findings)
    assert (copy / "compute-1.jsonl").read_bytes() == before  # what was seen stays
    assert len((copy / "compute-0.jsonl").read_bytes().splitlines()) == 3


def broken(entries: list[Shown], **changes: Any) -> list[Shown]:
    return [entries[0].model_copy(update=changes), *entries[1:]]


def forged() -> list[Shown]:
    """Return a journal with a statement that another node's key signed."""
    [entry] = journal(NODES[1], ONE)
    assert entry.statement is not None
    other = journal(NODES[0], ONE)[0].statement
    assert other is not None
    document = entry.statement.document | {"signature": other.document["signature"]}
    return [
        entry.model_copy(
            update={"statement": entry.statement.model_copy(update={"document": document})}
        )
    ]


BROKEN = {
    "journal entry 1 does not follow": broken(journal(NODES[1], ONE, TWO), previous="d" * 64),
    "journal entry 2 does not follow": broken(journal(NODES[1], None, TWO), epoch=f"1-{'00' * 16}"),
    "journal entry 2 is of an epoch that is over": journal(NODES[1], None, epoch=f"2-{'5a' * 16}"),
    "journal entry 1 shows a statement of another place": broken(
        journal(NODES[1], ONE), content="e" * 64
    ),
    "journal entry 1 shows the statement of another node": journal(NODES[0], ONE),
    "The signature does not verify": forged(),
}


@pytest.mark.parametrize("said", BROKEN)
def test_a_journal_that_does_not_hold_is_named(consortium: Path, show: Any, said: str) -> None:
    entries = BROKEN[said]
    if said.endswith("is over"):
        [first] = entries
        later = journal(NODES[1], None, None)[1].model_copy(update={"previous": first.hash})
        entries = [first, later]
    show(of_all(ONE, compute_1=entries))
    result = shoal("journal", "verify", consortium, status=3)
    assert f"compute-1: {said}" in result.stderr
    assert "the journals of compute-1 do not hold" in result.stderr


def test_statements_under_versions_that_the_directory_lacks_are_told(
    consortium: Path, show: Any
) -> None:
    under = Consortium(SECOND, NOW.roster)
    show(of_all(SECOND_SIGNED, total(under, "a" * 64)))
    result = shoal("journal", "verify", consortium)
    assert "compute-2: 1 statements are bound to versions of the manifest that" in result.stderr
    told = json.loads(shoal("journal", "verify", consortium, "--json").stdout)
    assert [each["unread"] for each in told["journals"]] == [1, 1, 1]


def test_a_silent_node_is_told_and_the_others_are_read(
    consortium: Path, show: Any, tmp_path: Path
) -> None:
    look = ("journal", "verify", consortium, "--copy", tmp_path / "copy")
    show(of_all(ONE))
    shoal(*look)
    show(of_all(ONE, TWO, compute_1=None))
    result = shoal(*look, status=4)
    assert "compute-1 did not answer" in result.stderr
    assert "compute-2: 2 entries, 1 of them new" in words(result)


def test_a_copy_that_is_none_is_refused(consortium: Path, show: Any, tmp_path: Path) -> None:
    show(of_all(ONE))
    (tmp_path / "compute-0.jsonl").write_bytes(b"{}\n")
    assert "is no copy of a journal" in refused(
        "journal", "verify", consortium, "--copy", tmp_path, status=1
    )


@pytest.fixture
def certify(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the trainer answer with these replies, by job."""

    def answering(replies: dict[str, Reply]) -> None:
        async def call(service: Any, method: str, path: str) -> Reply:
            return replies[path.split("/")[3]]

        monkeypatch.setattr(command, "call", call)

    return answering


def test_jobs_with_totals_and_no_certificate_are_listed(
    consortium: Path, show: Any, certify: Any
) -> None:
    certificate = under(NOW).make()
    certified = total(NOW, certificate.job, report=certificate.report.digest)
    show(charging(certificate, certified, ONE, TWO, SECOND_SIGNED))
    problems = {
        "a" * 64: {"type": "urn:shoal:problem:unknown-job", "detail": "the job is not known"},
        "b" * 64: {"type": "urn:shoal:problem:changed-report", "detail": "compute-1 signed"},
    }
    replies = {
        job: Reply(409, json.dumps(each, separators=(",", ":")).encode())
        for job, each in problems.items()
    }
    certify(replies | {certificate.job: Reply(200, certificate.encode())})
    said = words(shoal("journal", "watch", consortium, status=6))
    assert f"Job {'a' * 64} has totals and no certificate: no trainer of the consortium" in said
    assert f"Job {'b' * 64} has totals and no certificate: changed-report: compute-1 signed" in said
    assert certificate.job not in said
    assert f"Version 2 of the manifest, digest {SECOND.digest}, is signed by" in said
    show(charging(certificate, certified))
    assert "1 jobs have totals and a certificate." in words(shoal("journal", "watch", consortium))


def charging(certificate: ReleaseCertificate, *made: Made) -> Journals:
    """Return journals that begin with the charge of a certificate's only round."""
    [only] = certificate.rounds
    found: Journals = {}
    for each in (signed.body for signed in only.partial_sums):
        charge = each.charge
        content = content_hash(charge.salt, CHARGE, each.round, charge_body(charge.job_rounds))
        found[each.node] = journal(each.node, content, *made, epoch=charge.entry.epoch)
    return found


def test_a_certificate_whose_charges_a_journal_lacks_is_found(
    consortium: Path, show: Any, certify: Any
) -> None:
    certificate = under(NOW).make()
    certify({certificate.job: Reply(200, certificate.encode())})
    certified = total(NOW, certificate.job, report=certificate.report.digest)
    honest = charging(certificate, certified)
    show(honest | {NODES[1]: journal(NODES[1], None, certified)})
    result = shoal("journal", "watch", consortium, status=7)
    [only] = certificate.rounds
    lacks = f"the journal of {NODES[1]} lacks its charges of job {certificate.job}, rounds "
    assert lacks + only.spec.digest in result.stderr
    for node in (NODES[0], NODES[2]):
        assert f"the journal of {node} lacks" not in result.stderr
    show(honest | {NODES[1]: after_loss(NODES[1], [], honest[NODES[1]][0])})
    warned = shoal("journal", "watch", consortium).stderr
    assert lacks + only.spec.digest + f": {LOST}" in warned


@pytest.mark.parametrize("lie", ["forged", "another job's"])
def test_a_trainer_accuses_no_node_by_a_certificate_that_is_none(
    consortium: Path, show: Any, certify: Any, lie: str
) -> None:
    certificate = under(NOW).make()
    job = certificate.job if lie == "forged" else "a" * 64
    if lie == "forged":
        [only] = certificate.rounds
        first, *others = only.partial_sums
        charge = first.body.charge.model_copy(update={"salt": "00" * 16})
        forged = replace(first, body=first.body.model_copy(update={"charge": charge}))
        rounds = (only.model_copy(update={"partial_sums": (forged, *others)}),)
        certificate = certificate.model_copy(update={"rounds": rounds})
    certify({job: Reply(200, certificate.encode())})
    show(of_all(total(NOW, job)))
    said = words(shoal("journal", "watch", consortium, status=6))
    assert f"Job {job} has totals and no certificate: what the trainer shows is" in said


def test_a_journal_that_was_read_before_a_round_was_charged_lacks_nothing(
    consortium: Path, certify: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = under(NOW).make()
    certify({certificate.job: Reply(200, certificate.encode())})
    later = charging(
        certificate, total(NOW, certificate.job, report=certificate.report.digest), SECOND_SIGNED
    )
    readings = iter([later | {NODES[0]: []}, later])

    def from_nodes() -> Any:
        now = next(readings)
        return lambda party: now[party.name]

    monkeypatch.setattr(command, "from_nodes", from_nodes)
    said = words(shoal("journal", "watch", consortium))
    assert "1 jobs have totals and a certificate." in said


def test_a_certificate_with_another_report_than_the_totals_is_found(
    consortium: Path, show: Any, certify: Any
) -> None:
    certificate = under(NOW).make()
    show(of_all(total(NOW, certificate.job)))
    certify({certificate.job: Reply(200, certificate.encode())})
    result = shoal("journal", "watch", consortium, status=7)
    for node in NODES:
        assert f"{node} signed its total for another report than the certificate" in result.stderr


def test_a_journal_without_end_is_read_to_a_bound(
    consortium: Path, show: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_reading, "MOST_STATEMENTS", 1)
    show(of_all(ONE, TWO))
    warned = shoal("journal", "verify", consortium, status=3).stderr
    assert "compute-0: it is read to entry 1, and goes on" in warned
