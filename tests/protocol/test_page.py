"""docs/protocol.md keeps up with the code: fields, problems, phases, vectors and sizes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal_holder.faults
import shoal_trainer.jobs
from docs import worked_example
from shoal_kit.web.problems import HTTP_PROBLEMS
from shoal_protocol.rounds.attestations import AbandonmentReason
from shoal_protocol.sharing.received import OVERHEAD_BYTES, SMALLEST_ENVELOPE
from shoal_protocol.trust.policy import LARGEST_POPULATION
from shoal_protocol.wire.encoding import LARGEST_SET
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.phases import JOB, ROUND
from tests.vectors.operations import OPERATIONS
from tests.world.crowd_examples import CROWD_DOCUMENTS
from tests.world.examples import DOCUMENTS

PAGE = (Path(__file__).parents[2] / "docs/protocol.md").read_text()
SPOKEN = set(re.findall(r"`([^`\n]+)`", PAGE))


def errors(of: type[ProtocolError] = ProtocolError) -> Iterator[type[ProtocolError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from errors(kind)


def names(value: Any) -> set[str]:
    """Return the names of all members in a JSON value, at any depth."""
    if isinstance(value, dict):
        return set(value) | set().union(*map(names, value.values()))
    return set().union(*map(names, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("kind", sorted(DOCUMENTS | CROWD_DOCUMENTS))
def test_the_page_names_every_field_of_a_document(kind: str) -> None:
    assert f"`kind`: `{kind}`" in PAGE
    assert names((DOCUMENTS | CROWD_DOCUMENTS)[kind].to_json()) - {"body"} <= SPOKEN | {"signature"}


def test_the_page_lists_every_problem_under_its_status() -> None:
    assert {shoal_trainer.jobs.JobFailed, shoal_holder.faults.VaultFailed} <= set(errors())
    table = PAGE.partition("### Problems")[2].partition("## 21")[0]
    listed = {
        (status, code)
        for line in table.splitlines()
        if (cells := re.match(r"\| ([\d, ]+) \| (.*) \|$", line))
        for status in map(int, cells[1].split(","))
        for code in re.findall(r"`([a-z-]+)`", cells[2])
    }
    for kind in errors():
        if kind.__module__.startswith("shoal_"):
            assert (kind.status, kind.code) in listed
    for status, (code, *_) in HTTP_PROBLEMS.items():
        assert (status, code) in listed


@pytest.mark.parametrize("table", [ROUND, JOB], ids=["round", "job"])
def test_the_page_has_every_step_of_a_phase_table(table: dict[Any, Any]) -> None:
    section = PAGE.partition("## 19")[2].partition("## 20")[0]
    steps = {
        (start, cells[2])
        for line in section.splitlines()
        if (cells := re.match(r"\| ([a-z, ]+) \| .* \| ([a-z]+) \|$", line))
        for start in cells[1].split(", ")
    }
    assert {(phase.value, then.value) for (phase, _), then in table.items()} <= steps


def test_the_page_knows_every_reason_to_abandon_a_round() -> None:
    codes = AbandonmentReason.model_json_schema()["properties"]["code"]["enum"]
    assert set(codes) <= SPOKEN


def test_the_page_explains_every_operation_of_the_vectors() -> None:
    assert set(OPERATIONS) <= SPOKEN


def test_the_worked_example_of_the_page_is_what_its_program_computes() -> None:
    marked = [name for _, name, *_ in worked_example.MARK.findall(PAGE)]
    assert marked == list(worked_example.blocks())
    assert worked_example.filled(PAGE) == PAGE


def test_the_page_has_the_sizes_right() -> None:
    assert f"{LARGEST_SET:,} members" in PAGE
    assert f"at most {LARGEST_POPULATION:,}" in PAGE
    assert f"length at least {SMALLEST_ENVELOPE}" in PAGE
    assert f"a seed has {OVERHEAD_BYTES + 32} bytes, one of a vector {OVERHEAD_BYTES} + 8 d" in PAGE
