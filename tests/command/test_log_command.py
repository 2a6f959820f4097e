"""`shoal log verify` on logs that are files, honest and not."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from shoal_consortium import consortium_files
from shoal_consortium.log_reading import CHECKPOINT
from shoal_protocol.log.checkpoints import Entry, Witnessed
from shoal_protocol.trust.succession import following_version
from tests.command.running import refused, shoal, words
from tests.protocol.test_succession import NOW, following, proved
from tests.world import examples
from tests.world.certified import successor
from tests.world.logs import NODES, certificate, head, rounds, signed, version, write

FIRST: list[Entry] = [version(of=examples.CONSORTIUM.digest), *rounds(3), certificate(3)]
LATER = [*FIRST, *rounds(300, job=1), certificate(300, job=1, which=2)]
FORK = [*FIRST[:-1], certificate(3, which=3), *rounds(300, job=1)]


@pytest.fixture
def consortium(tmp_path: Path) -> Path:
    directory = tmp_path / "consortium"
    held = examples.CONSORTIUM
    consortium_files.create(directory, held.signed_manifest, held.roster)
    return directory


def files(
    tmp_path: Path, name: str, entries: Sequence[Entry], witnessed: Witnessed | None = None
) -> Path:
    write(tmp_path / name, entries, witnessed)
    return tmp_path / name


def test_a_log_that_holds_is_said_to_hold(tmp_path: Path, consortium: Path) -> None:
    log = files(tmp_path, "log", LATER)
    said = words(shoal("log", "verify", consortium, "--files", log))
    assert f"{len(LATER)} entries" in said
    assert "1 of the Compute nodes must lie" in said
    told = json.loads(shoal("log", "verify", consortium, "--files", log, "--json").stdout)
    assert told["signed_by"] == NODES
    assert (told["size"], told["head"]) == (len(LATER), head(LATER))


def test_a_log_from_before_the_nodes_changed_holds_and_says_under_which_version(
    tmp_path: Path, consortium: Path
) -> None:
    log, first = files(tmp_path, "log", LATER), examples.CONSORTIUM
    nodes = [node.model_dump() for node in first.manifest.compute_nodes]
    for node in nodes[1:]:
        node["verify_key"] = bytes(examples.signing_key(f"new {node['name']}").verify_key).hex()
    second = successor(first, compute_nodes=nodes)
    consortium_files.add_version(consortium, second.signed_manifest, second.roster)
    told = words(shoal("log", "verify", consortium, "--files", log))
    assert "They are nodes of version 1 of the manifest. Those of version 2 have not" in told
    one = signed(LATER, NODES[:1])
    shoal("log", "verify", consortium, "--files", files(tmp_path, "one", LATER, one), status=3)


def test_nodes_of_a_version_that_is_not_believed_vouch_for_no_log(tmp_path: Path) -> None:
    nodes = tuple(
        node.model_copy(
            update={"verify_key": bytes(examples.signing_key(f"new {node.name}").verify_key).hex()}
        )
        for node in NOW.manifest.compute_nodes
    )
    for signers, status in (([], 3), (NODES, 0)):  # of the log's proof of the version
        later = following(compute_nodes=nodes)
        later = proved(later, *signers) if signers else later
        second = following_version(NOW, later.encode(), NOW.roster.encode(), believe=False)
        directory = tmp_path / f"consortium {status}"
        consortium_files.create(directory, NOW.signed_manifest, NOW.roster)
        consortium_files.add_version(directory, second.signed_manifest, second.roster)

        def key(name: str) -> SigningKey:
            return examples.signing_key(name if name == "aggregator" else f"new {name}")

        witnessed = signed(FIRST, NODES, manifest=later.body, keys=key)
        log = files(tmp_path, "log", FIRST, witnessed)
        for pin in ([], ["--pin", NOW.digest]):
            shoal("log", "verify", directory, "--files", log, *pin, status=status)
        shoal("log", "verify", directory, "--files", log, "--pin", second.digest)


def test_a_monitor_shows_what_is_new_and_keeps_a_copy_that_is_a_log(
    tmp_path: Path, consortium: Path
) -> None:
    copy = tmp_path / "copy"
    look = ("log", "verify", consortium, "--copy", copy)
    first = shoal(*look, "--files", files(tmp_path, "log", FIRST)).stdout.splitlines()
    assert sum(each.startswith("place ") for each in first) == len(FIRST)
    assert first[0].startswith(f"place 0 kind manifest digest {examples.CONSORTIUM.digest}")
    second = shoal(*look, "--files", files(tmp_path, "log", LATER)).stdout.splitlines()
    assert sum(each.startswith("place ") for each in second) == len(LATER) - len(FIRST)
    assert second[0].startswith(f"place {len(FIRST)} kind round")
    assert "New entries 0" in words(shoal(*look, "--files", tmp_path / "log"))
    told = json.loads(shoal("log", "verify", consortium, "--files", copy, "--json").stdout)
    assert told["size"] == len(LATER)


def test_a_fork_is_told_and_both_checkpoints_are_kept(tmp_path: Path, consortium: Path) -> None:
    copy = tmp_path / "copy"
    shoal("log", "verify", consortium, "--files", files(tmp_path, "log", FIRST), "--copy", copy)
    fork = files(tmp_path, "fork", FORK, signed(FORK, NODES[1:]))
    said = refused("log", "verify", consortium, "--files", fork, "--copy", copy, status=7)
    assert "two histories" in said
    kept = {path.read_bytes() for path in (copy / "evidence").iterdir()}
    assert kept == {signed(FIRST).encode(), signed(FORK, NODES[1:]).encode()}
    assert (copy / CHECKPOINT).read_bytes() == signed(FIRST).encode()  # the copy stays
    elsewhere = ("--against", copy / CHECKPOINT)
    said = refused("log", "verify", consortium, "--files", fork, *elsewhere, status=7)
    assert "two histories" in said


def test_a_log_with_an_entry_changed_left_out_or_gone_does_not_hold(
    tmp_path: Path, consortium: Path
) -> None:
    for name, entries in {
        "changed": [*FIRST[:-1], certificate(3, which=3)],
        "left out": [*FIRST[:2], *FIRST[3:]],
        "gone": FIRST[:-1],
    }.items():
        log = files(tmp_path, name, entries, signed(FIRST))
        said = refused("log", "verify", consortium, "--files", log, status=7)
        assert "not those of the checkpoint" in said
