"""Ledgers that are hash-chained: nothing can be changed, dropped, added or swapped unseen."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyroaring import BitMap

from shoal_protocol.privacy.ledger import EMPTY, GENESIS, Chain, LedgerEntry, population_digest
from shoal_protocol.privacy.ledger_checks import (
    charge_of,
    check_anchors,
    check_charge,
    contradictions,
    verify_chain,
)
from shoal_protocol.wire.encoding import encode_clients
from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.service_errors import WrongCharge
from tests.world import examples
from tests.world.examples import OPENED_AT, SPEC

SPECS = [examples.spec(number=number) for number in range(4)]


def ledger(name: str = "compute-0", rounds: int = 4) -> list[LedgerEntry]:
    """Return a ledger in which the second round's charge was given back at the end."""
    entries, chain = [], Chain()
    for number, spec in enumerate(SPECS[:rounds]):
        at = OPENED_AT + timedelta(seconds=number)
        after = chain.head
        entries.append(charge_of(spec, ledger=name, after=after, at=at, job_rounds=number + 1))
        chain.follow(entries[-1])
    if rounds > 1:
        entries.append(entries[1].returned(after=chain.head, at=OPENED_AT))
    return entries


LEDGER = ledger()


def changed(entry: LedgerEntry, **fields: Any) -> LedgerEntry:
    return LedgerEntry(**dict(entry) | fields)


def rewritten(entries: list[LedgerEntry], start: int) -> list[LedgerEntry]:
    """Link the entries from `start` on anew, as somebody who changes one would."""
    linked = entries[:start]
    for entry in entries[start:]:
        head = linked[-1].head if linked else EMPTY
        linked.append(changed(entry, number=head.number + 1, previous=head.digest))
    return linked


def test_an_honest_ledger_verifies_and_ends_where_it_says() -> None:
    chain = verify_chain(LEDGER)
    assert (chain.ledger, chain.head) == ("compute-0", LEDGER[-1].head)
    assert verify_chain([]).head == EMPTY


CHANGES: dict[str, Any] = {
    "ledger": "compute-1",
    "number": 7,
    "previous": "1" * 64,
    "kind": "return",
    "round": "2" * 64,
    "job": "3" * 64,
    "job_rounds": 8,
    "population": "4" * 64,
    "clients": 11,
    "mu": 0.125,
    "epsilon": 3.0,
    "at": OPENED_AT + timedelta(days=1),
}


@pytest.mark.parametrize("field", CHANGES)
@pytest.mark.parametrize("place", range(len(LEDGER) - 1))
def test_any_change_of_an_entry_is_found(place: int, field: str) -> None:
    tampered = [*LEDGER]
    # unchecked, since not even an entry by itself may have some of these values
    tampered[place] = LEDGER[place].model_copy(update={field: CHANGES[field]})
    with pytest.raises(MalformedDocument, match=f"entry {place + 1}|entry {place + 2}"):
        verify_chain(tampered)


@pytest.mark.parametrize("field", sorted(CHANGES.keys() - {"at", "kind"}))
def test_a_changed_last_entry_is_found_by_what_it_gives_back(field: str) -> None:
    with pytest.raises(MalformedDocument, match="entry 5"):
        verify_chain([*LEDGER[:-1], changed(LEDGER[-1], **{field: CHANGES[field]})])


@pytest.mark.parametrize("place", range(len(LEDGER) - 1))
def test_an_entry_removed_from_the_beginning_or_the_middle_is_found(place: int) -> None:
    with pytest.raises(MalformedDocument, match=f"entry {place + 1} is missing"):
        verify_chain([*LEDGER[:place], *LEDGER[place + 1 :]])


@pytest.mark.parametrize("place", range(len(LEDGER) - 1))
def test_entries_that_changed_places_are_found(place: int) -> None:
    swapped = [*LEDGER]
    swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
    with pytest.raises(MalformedDocument, match=f"entry {place + 1}"):
        verify_chain(swapped)


BREAKS: dict[str, Callable[[], LedgerEntry]] = {
    "the same charge again": lambda: changed(LEDGER[0]),
    "a charge given back twice": lambda: changed(LEDGER[-1]),
    "a return of what was never charged": lambda: changed(LEDGER[-1], round="5" * 64),
    "a return of more than was charged": lambda: changed(LEDGER[2], kind="return", mu=0.5),
    "a return of less than was charged": lambda: changed(LEDGER[2], kind="return", mu=0.1),
    "an entry of another ledger": lambda: changed(LEDGER[2], kind="return", ledger="compute-1"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_an_entry_that_links_well_and_makes_no_sense_is_refused(name: str) -> None:
    with pytest.raises(MalformedDocument, match="entry 6"):
        verify_chain(rewritten([*LEDGER, BREAKS[name]()], 5))


def test_a_refused_entry_leaves_the_chain_where_it_was() -> None:
    chain = verify_chain(LEDGER[:2])
    with pytest.raises(MalformedDocument):
        chain.follow(LEDGER[3])
    for entry in LEDGER[2:]:
        chain.follow(entry)
    assert chain.head == LEDGER[-1].head


def test_a_ledger_cut_off_at_the_end_verifies_alone_and_not_against_a_release() -> None:
    cut = LEDGER[:3]
    verify_chain(cut)
    check_anchors(cut, [LEDGER[0], LEDGER[2]])
    with pytest.raises(MalformedDocument, match="cut off or set back"):
        check_anchors(cut, [LEDGER[3]])


def test_a_ledger_rewritten_from_the_middle_does_not_verify_against_a_release() -> None:
    anew = rewritten([LEDGER[0], changed(LEDGER[1], mu=0.01), LEDGER[2], LEDGER[3]], 1)
    verify_chain(anew)
    check_anchors(anew, [LEDGER[0]])
    with pytest.raises(MalformedDocument, match="written anew"):
        check_anchors(anew, [LEDGER[3]])


def test_releases_of_a_ledger_that_was_set_back_contradict_each_other() -> None:
    assert list(contradictions([*LEDGER, *ledger("compute-1"), *LEDGER])) == []
    set_back = charge_with(number=3, previous=LEDGER[1].digest, job_rounds=3)
    assert list(contradictions([LEDGER[2], set_back])) == [
        "compute-0 shows two different entries with the number 3"
    ]
    other = charge_with(number=4, previous=set_back.digest)
    assert list(contradictions([LEDGER[2], other])) == [
        "compute-0: entry 4 does not name the one before it"
    ]


def test_a_population_is_named_by_its_set_and_not_by_who_encoded_it() -> None:
    clients = BitMap([1, 5, 9])
    assert population_digest(encode_clients(clients)) == population_digest(
        encode_clients([9, 5, 1])
    )
    assert population_digest(encode_clients(clients)) != population_digest(encode_clients([1, 5]))


def charge_with(**changes: Any) -> LedgerEntry:
    made = charge_of(SPEC, ledger="compute-0", after=LEDGER[2].head, at=OPENED_AT, job_rounds=1)
    return changed(made, **changes)


def test_a_nodes_charge_of_the_whole_population_is_accepted_at_any_place_in_its_ledger() -> None:
    check_charge(charge_with(), SPEC, node="compute-0")
    check_charge(charge_with(number=1, previous=GENESIS), SPEC, node="compute-0")


@pytest.mark.parametrize("field", sorted(CHANGES.keys() - {"number", "previous", "at"}))
def test_a_charge_that_is_not_the_rounds_is_refused(field: str) -> None:
    with pytest.raises(WrongCharge):
        check_charge(charge_with(**{field: CHANGES[field]}), SPEC, node="compute-0")


@pytest.mark.parametrize(("number", "counted"), [(0, 2), (2, 4), (0, None)])
def test_a_charge_that_counts_more_rounds_than_there_can_have_been_is_refused(
    number: int, counted: int | None
) -> None:
    charge = changed(examples.charge(SPECS[number], "compute-0"), job_rounds=counted)
    with pytest.raises(WrongCharge):
        check_charge(charge, SPECS[number], node="compute-0")


@pytest.mark.parametrize("counted", [1, 3])
def test_an_entry_that_miscounts_the_rounds_of_its_job_is_found(counted: int) -> None:
    with pytest.raises(MalformedDocument, match="entry 2 miscounts the rounds of its job"):
        verify_chain([LEDGER[0], changed(LEDGER[1], job_rounds=counted)])


def test_another_nodes_charge_is_refused() -> None:
    with pytest.raises(WrongCharge):
        check_charge(charge_with(), SPEC, node="compute-1")
