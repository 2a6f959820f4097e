"""Parties that were shown different crowds find out by comparing, and hold the proof."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from shoal_protocol.crowds import draws
from shoal_protocol.crowds.documents import LogEntry, SubmissionReceipt
from shoal_protocol.crowds.evidence import CrowdEvidence, differences, fingerprint, read_fingerprint
from shoal_protocol.privacy.ledger import GENESIS
from shoal_protocol.wire.documents import Signed
from tests.world.crowd_examples import (
    CLOSING,
    CROWD_CONSORTIUM,
    CROWD_JOB,
    DRAW,
    ENTRY,
    OPENING,
    RECEIPT,
    REPLACED,
    SEED,
)
from tests.world.examples import named, seed


def evidence(**changes: Any) -> CrowdEvidence:
    shown = {"opening": named("trainer", OPENING), "closing": named("trainer", CLOSING)}
    return CrowdEvidence(**(shown | changes))


def said_of(other: CrowdEvidence, reference: CrowdEvidence | None = None) -> list[str]:
    found = differences(reference or evidence(), {"other": other}, CROWD_CONSORTIUM)
    assert found.keys() <= {"other"}
    return found.get("other", [])


def changed(document: Any, **changes: Any) -> Signed[Any]:
    return named("trainer", document.model_copy(update=changes))


def test_those_who_were_shown_the_same_crowd_differ_in_nothing() -> None:
    kept = {"draws": (named("trainer", DRAW),), "receipts": (named("trainer", RECEIPT),)}
    assert said_of(evidence(**kept)) == []
    assert said_of(evidence(closing=None)) == said_of(evidence(), evidence(closing=None)) == []
    read = CrowdEvidence.model_validate_json(evidence(**kept).model_dump_json())
    assert read == evidence(**kept)


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "another seed": (
        {"opening": changed(OPENING, commitment="ab" * 32), "closing": None},
        "another opening",
    ),
    "another time": (
        {"opening": changed(OPENING, opened_at=OPENING.opened_at + timedelta(seconds=1))},
        "another opening",
    ),
    "another end": (
        {"closing": changed(CLOSING, closed_at=CLOSING.closed_at + timedelta(seconds=1))},
        "another closing",
    ),
    "another job": ({"opening": changed(OPENING, job="ab" * 32)}, "another job"),
    "not signed": (
        {"opening": dataclasses.replace(named("trainer", OPENING), signature="00" * 64)},
        "did not sign",
    ),
    "a draw of another job": (
        {"draws": (changed(DRAW, job="ab" * 32),)},
        "of another job",
    ),
    "a steered draw": (
        {"draws": (changed(DRAW, instance=(DRAW.instance + 1) % 4),)},
        "another instance",
    ),
    "a receipt that came to nothing": (
        {"receipts": (changed(RECEIPT, entry=ENTRY.model_copy(update={"weights": "0" * 64})),)},
        "took its place",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_who_was_shown_another_crowd_is_found_by_comparing(name: str) -> None:
    changes, what = OTHERS[name]
    said = said_of(evidence(**changes))
    assert said and all(what in each for each in said)


def test_a_closing_that_reveals_another_seed_shows_against_an_opening_alone() -> None:
    other = evidence(closing=changed(CLOSING, seed="ab" * 32))
    assert "does not follow" in said_of(other, evidence(closing=None))[0]


def test_two_holders_whose_contributions_were_given_one_place_find_it_together() -> None:
    """Each receipt alone fits the closing: its instance was replaced again."""
    second = next(
        nonce
        for nonce in (seed(f"second {number}").hex() for number in range(64))
        if draws.replaced_instance(SEED, nonce, 4) == REPLACED
    )
    rival = LogEntry(
        **(ENTRY.model_dump() | {"nonce": second, "weights": "cd" * 32, "previous": GENESIS})
    )
    heads = list(CLOSING.heads)
    heads[REPLACED] = heads[REPLACED].model_copy(update={"revision": 2, "digest": "ef" * 32})
    later = CLOSING.model_copy(update={"heads": tuple(heads), "contributions": 2})
    closing = named("trainer", later)
    receipt = SubmissionReceipt(manifest=CROWD_JOB.manifest, entry=rival)
    first = evidence(closing=closing, receipts=(named("trainer", RECEIPT),))
    other = evidence(closing=closing, receipts=(named("trainer", receipt),))
    assert said_of(first, evidence(closing=closing)) == []
    assert said_of(other, evidence(closing=closing)) == []
    found = differences(
        evidence(closing=closing), {"first": first, "other": other}, CROWD_CONSORTIUM
    )
    assert list(found) == ["together"] and "in the same place" in found["together"][0]


def test_a_fingerprint_is_read_however_it_was_written_down() -> None:
    shown = fingerprint(OPENING.digest)
    assert len(shown.split("-")) == 10 and OPENING.digest.startswith(shown.replace("-", ""))
    assert read_fingerprint(shown.upper().replace("-", " ")) == shown
    for wrong in (shown[:-1], shown + "0", "g" + shown[1:], ""):
        with pytest.raises(ValueError, match="40 hexadecimal"):
            read_fingerprint(wrong)
