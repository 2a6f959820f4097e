"""`shoal certificate` on files: plain words and status 0, or the reason and status 1."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from shoal_command import certificate as certificates
from shoal_command import connection
from shoal_command.certificate import COMPARE, NOT_SHOWN
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.epsilons import epsilon_at
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.encoding import canonical_json
from tests.command.running import run
from tests.world import examples
from tests.world.certified import CHANGED, MAKINGS, TWO_ROUNDS


def verify(directory: Path, encoded: bytes, manifest: bytes, *more: str, status: int) -> Result:
    """Write both files, check the one by the other, and expect that exit status."""
    (directory / "certificate.json").write_bytes(encoded)
    (directory / "manifest.json").write_bytes(manifest)
    files = [str(directory / "certificate.json"), "--manifest", str(directory / "manifest.json")]
    result = run("certificate", "verify", *files, *more)
    assert result.exit_code == status, result.output
    return result


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def test_a_certificate_says_in_words_what_was_released_to_whom_from_how_many(
    tmp_path: Path,
) -> None:
    said = in_one_line(verify(tmp_path, TWO_ROUNDS.encode(), TWO_ROUNDS.manifest, status=0).stdout)
    certificate = TWO_ROUNDS.make().body
    for fact in (
        "The certificate holds.",
        f"Version 1 of the manifest of example, digest {examples.CONSORTIUM.digest}. {COMPARE}",
        "linear regression on the columns age, pressure",
        f"analyst (Operator of analyst), as job {certificate.job}",
        *(f"id {each.spec.digest}" for each in certificate.rounds),
        *(f"cohort {each.result.body.cohort}" for each in certificate.rounds),
        "second moments, 4 numbers: the sum over 11 of 12 clients, with their noise.",
        "second moment matrix, 7 numbers: the sum over 11 of 12 clients",
        "discrete gaussian",
        "2 clients are missing and 3 of the others",
        "compute-0 (Operator of compute-0); compute-1 (Operator of compute-1); compute-2",
        "Against 2 of 3 Compute nodes, with 3 clients of each cohort",
        "epsilon 2 at delta 1e-06; 1.8",
        "Of the price: 20 % for spreads of the columns; 80 % for moments of the columns.",
        "aggregator (Operator of aggregator)",
        "trainer (Operator of trainer)",
        *(
            f"{entry.ledger}, entry {entry.number}, {entry.digest}"
            for each in certificate.rounds
            for entry in each.ledger_entries
        ),
        *NOT_SHOWN,
    ):
        assert fact in said


def test_many_rounds_are_told_of_together(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(certificates, "FEW_ROUNDS", 1)
    said = in_one_line(verify(tmp_path, TWO_ROUNDS.encode(), TWO_ROUNDS.manifest, status=0).stdout)
    certificate = TWO_ROUNDS.make().body
    for fact in (
        "1 round (number 0): second moments, 4 numbers: the sum over 11 of the 12 clients",
        "1 round (number 1): second moment matrix, 7 numbers",
        "discrete gaussian",
        "Each of the 12 clients who joined was asked in 2 of all rounds",
        "Of 2 rounds, 3 of 3 Compute nodes: compute-0 (Operator of compute-0); compute-1",
        *(
            f"; the last is {entry.digest} and stands for all before it"
            for entry in certificate.rounds[-1].ledger_entries
        ),
    ):
        assert fact in said
    assert certificate.rounds[0].spec.digest not in said


def a_round(number: int, **changes: Any) -> dict[str, Any]:
    """Return one of many rounds as the command knows them."""
    terms = {"dimension": 10, "population_size": 64, "minimum_cohort": 58, "colluders": 6}
    return {
        "number": number,
        "query": "gradient_sum",
        "cohort_size": 64,
        "noise": {"mechanism": "discrete_gaussian", "scale": 1000.0},
        "mu": 0.02,
        "epsilon": None,
        "ledger_entries": [{"ledger": "trainer", "number": number + 7, "digest": f"{number:x}"}],
        **terms,
        **changes,
    }


def test_equal_rounds_make_one_paragraph_with_their_price_and_who_took_part() -> None:
    rounds = [a_round(number) for number in range(500) if number not in (37, 99, 100)]
    rounds[5]["cohort_size"] = 61
    lost = [{"number": number, "reason": "too-few-clients"} for number in (37, 99)]
    said = {
        "rounds": rounds,
        "lost_rounds": [*lost, {"number": 100, "reason": "no client was asked"}],
        "population_size": 256,
        "participations": {"least": 124, "most": 125},
        "privacy": {"delta": 1e-5},
    }
    epsilon = epsilon_at(1e-5, Cost.gaussian(0.02))
    assert list(certificates.released(said)) == [
        "497 rounds (number 0 to 36, 38 to 98, 101 to 499): gradient sum, 10 numbers: the sum over "
        "61 to 64 of the 64 clients that it asks, with their noise. Noise: discrete gaussian, of "
        "scale 1,000 from each client, in lattice units. It is counted on even if 6 clients are "
        "missing and 6 of the others collude. By itself each costs a client that it asks epsilon "
        f"{epsilon:.4g} at delta 1e-05.",
        "Each of the 256 clients who joined was asked in 124 to 125 of all rounds, the lost ones "
        "too, and pays for those alone.",
    ]
    assert list(certificates.lost(said)) == [
        "2 rounds (number 37, 99): too-few-clients.",
        "1 round (number 100): no client was asked.",
    ]
    assert list(certificates.ledgers(rounds)) == [
        "trainer: 497 entries, 7 to 43, 45 to 105, 108 to 506; the last is 1f3 and stands for all "
        "before it"
    ]


def test_rounds_at_another_price_or_with_other_noise_are_told_of_apart() -> None:
    louder = {"mechanism": "discrete_gaussian", "scale": 2000.0}
    said = {
        "rounds": [a_round(0), a_round(1, mu=0.03), a_round(2), a_round(3, noise=louder)],
        "population_size": 256,
        "participations": {"least": 1, "most": 1},
        "privacy": {"delta": 1e-5},
    }
    first, dearer, noisier, _ = certificates.released(said)
    assert first.startswith("2 rounds (number 0, 2)")
    assert dearer.startswith("1 round (number 1)")
    assert noisier.startswith("1 round (number 3)")


@pytest.mark.parametrize("name", MAKINGS)
def test_every_kind_of_certificate_can_be_put_in_words(tmp_path: Path, name: str) -> None:
    making = MAKINGS[name]
    verify(tmp_path, making.encode(), making.manifest, status=0)


def test_json_says_the_same(tmp_path: Path) -> None:
    making = MAKINGS["threshold, two of three sums"]
    said = json.loads(verify(tmp_path, making.encode(), making.manifest, "--json", status=0).stdout)
    assert said["holds"] is True
    assert said["manifest"]["digest"] == making.consortia[0].digest
    (of_round,) = said["rounds"]
    assert [each["name"] for each in of_round["compute_nodes"]] == ["compute-0", "compute-2"]
    assert of_round["compute_nodes_in_all"] == 3
    assert said["privacy"] == making.make().body.report.body.privacy.model_dump(mode="json")


REFUSED: dict[str, tuple[bytes, bytes, str]] = {
    "a changed byte": (
        TWO_ROUNDS.encode().replace(b'"cohort_size":11', b'"cohort_size":12', 1),
        TWO_ROUNDS.manifest,
        "the certificate: The signature does not verify",
    ),
    "a space at its end": (
        TWO_ROUNDS.encode() + b" ",
        TWO_ROUNDS.manifest,
        "the certificate: the JSON is not in canonical form",
    ),
    "a changed byte of the manifest": (
        TWO_ROUNDS.encode(),
        TWO_ROUNDS.manifest.replace(b"Operator of trainer", b"Operator of Trainer"),
        "the manifest: The signature does not verify",
    ),
    "an unsigned manifest": (
        TWO_ROUNDS.encode(),
        examples.CONSORTIUM.manifest.canonical,
        "the manifest: a signed document has the fields",
    ),
    "a manifest that somebody else signed": (
        TWO_ROUNDS.encode(),
        canonical_json(
            examples.CONSORTIUM.signed_manifest.to_json()
            | {"signature": examples.DOCUMENTS["vote"].signature}
        ),
        "the manifest: The signature does not verify",
    ),
    "the files changed for one another": (
        TWO_ROUNDS.manifest,
        TWO_ROUNDS.encode(),
        "the certificate: a document of another kind is due here",
    ),
    "no bytes at all": (b"", TWO_ROUNDS.manifest, "the certificate: the body is not JSON"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("more", [[], ["--json"]], ids=["words", "json"])
def test_what_does_not_hold_ends_with_status_1_and_the_reason(
    tmp_path: Path, name: str, more: list[str]
) -> None:
    encoded, manifest, reason = REFUSED[name]
    result = verify(tmp_path, encoded, manifest, *more, status=1)
    assert result.stdout == ""
    assert "the certificate does not hold" in result.stderr
    assert reason in in_one_line(result.stderr)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (CHANGED, f"to the manifest {examples.CONSORTIUM.digest}, which is not at hand"),
        (examples.consortium(consortium="another"), "these versions are at hand: 1"),
    ],
    ids=["a later version", "another consortium's"],
)
def test_without_the_version_that_it_is_bound_to_nothing_is_said_of_a_certificate(
    tmp_path: Path, other: Consortium, said: str
) -> None:
    result = verify(tmp_path, TWO_ROUNDS.encode(), other.signed_manifest.encode(), status=6)
    assert result.stdout == ""
    told = in_one_line(result.stderr)
    assert "whether the certificate holds cannot be told yet" in told
    assert said in told
    assert "Put the missing versions into" in told
    assert "does not hold" not in told


def test_a_file_that_is_missing_is_a_mistake(tmp_path: Path) -> None:
    arguments = ["certificate", "verify", str(tmp_path / "none"), "--manifest", "none"]
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No such file" in result.stderr


@pytest.mark.parametrize("place", ["certificate", "manifest"])
def test_a_file_without_an_end_is_not_read_until_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(connection, "LARGEST_FILE", 2 << 20)
    files = {"certificate": tmp_path / "certificate.json", "manifest": tmp_path / "manifest.json"}
    files["certificate"].write_bytes(TWO_ROUNDS.encode())
    files["manifest"].write_bytes(TWO_ROUNDS.manifest)
    files[place] = Path("/dev/zero")
    arguments = [str(files["certificate"]), "--manifest", str(files["manifest"])]
    result = run("certificate", "verify", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "/dev/zero has more than 2 MiB" in result.stderr
