"""`shoal certificate` on files: plain words and status 0, or the reason and status 1."""

from pathlib import Path

import pytest
from typer.testing import Result

from shoal_command import connection
from shoal_command.terminal import ExitStatus
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.encoding import canonical_json
from tests.command.running import run
from tests.world import examples
from tests.world.certified import CHANGED, TWO_ROUNDS


def verify(directory: Path, encoded: bytes, manifest: bytes, *more: str, status: int) -> Result:
    """Write both files, check the one by the other, and expect that exit status."""
    (directory / "certificate.json").write_bytes(encoded)
    (directory / "manifest.json").write_bytes(manifest)
    files = [str(directory / "certificate.json"), "--manifest", str(directory / "manifest.json")]
    result = run("certificate", "verify", *files, *more)
    assert result.exit_code == status, result.output
    return result


def test_a_replay_that_differs_has_an_exit_status_of_its_own(tmp_path: Path) -> None:
    """Of a certificate that holds, with a posterior that somebody made up."""
    made_up = (TWO_ROUNDS.encode(), TWO_ROUNDS.manifest)
    done = verify(tmp_path, *made_up, "--replay", status=ExitStatus.CONTRADICTION)
    assert "The certificate holds." in done.output and "Replay: differs." in done.output


def in_one_line(text: str) -> str:
    return " ".join(text.split())


REFUSED: dict[str, tuple[bytes, bytes, str]] = {
    "a changed byte": (
        TWO_ROUNDS.encode().replace(b'"cohort_size":11', b'"cohort_size":12', 1),
        TWO_ROUNDS.manifest,
        "the partial sums of round 0: The signature does not verify",
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
        "the certificate: earlier_manifests: is missing",
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
