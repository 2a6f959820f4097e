"""Each individual has a slot for ever, which tells nothing of who it is."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap

from shoal_agent.data_holder import DataHolder
from shoal_agent.directory import MemoryLost
from shoal_agent.restoring import restore_file
from shoal_holder import spending
from shoal_holder.opening import from_files
from shoal_holder.records import Identity, Records, chosen_together
from shoal_holder.restoring import raise_to_least
from shoal_holder.settings import Settings
from shoal_holder.site import Sources
from shoal_holder.site_files import STATE_FILE, records_in
from shoal_holder.slots import injection, slots_by_id
from shoal_holder.state import State
from shoal_protocol.jobs.charges import RoundCharged
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.encoding import encode_clients
from tests.world.around_holder import (
    COLUMNS,
    QUERY,
    World,
    no_noise,
    state_of,
    vault_of,
)
from tests.world.chance import fixed_bytes
from tests.world.people import rows_at

PEOPLE = tuple(f"patient-{name}" for name in ("anne", "bela", "carl", "dora", "emil"))
SLOTS = 12


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, SLOTS)


def records_of(
    people: dict[str, list[float]], *, column: str = "patient", most: int = 1
) -> Records:
    """Return records of these people: each age is one row, with a pressure twice as high."""
    rows = [[age, 2 * age] for ages in people.values() for age in ages]
    starts = np.cumsum([0, *map(len, people.values())])
    return Records(COLUMNS, np.array(rows), starts, Identity(column, tuple(people), most))


EVERYBODY = {name: [20.0 + place] for place, name in enumerate(PEOPLE)}


def ages(holder: DataHolder, most: int = 5) -> dict[int, list[float]]:
    """Return the ages that count in each slot."""
    site = vault_of(holder)._site
    positions = site.positions()
    values, there = chosen_together(site.records, list(positions.values()), COLUMNS, most=most)
    return {
        slot: sorted(values[place, there[place], 0].tolist())
        for place, slot in enumerate(positions)
    }


async def opened(
    world: World, people: dict[str, list[float]], **more: Any
) -> dict[int, list[float]]:
    holder = world.holder(records=records_of(people, **more))
    try:
        return ages(holder)
    finally:
        await holder.close()


def state(directory: Path) -> State:
    return State(directory / "state.sqlite", authority="00" * 32)


def slots(of: State, ids: tuple[str, ...], chance: RandomBytes, count: int = SLOTS) -> list[int]:
    own = BitMap(range(count))
    return [slot for slot, _ in slots_by_id(of.file, Identity("id", ids, 1), own, chance)]


async def test_who_is_gone_keeps_the_slot_and_who_comes_back_has_it(world: World) -> None:
    first = await opened(world, EVERYBODY)
    [slot] = [slot for slot, found in first.items() if found == [22.0]]
    without = {name: found for name, found in EVERYBODY.items() if name != "patient-carl"}

    assert await opened(world, without) == first | {slot: []}
    newcomers = {f"new-{place}": [50.0] for place in range(SLOTS - len(EVERYBODY))}
    among = await opened(world, without | newcomers)
    assert among[slot] == []
    assert sum(found == [50.0] for found in among.values()) == len(newcomers)
    assert (await opened(world, EVERYBODY))[slot] == [22.0]

    with pytest.raises(
        ValueError,
        match=r"^more individuals than slots: .*shoal agent grow DIRECTORY --slots N`, where N",
    ):
        await opened(world, without | newcomers | {"one-more": [1.0]})


def test_new_ids_get_every_choice_of_free_slots_equally_often() -> None:
    """Chi-square over all 12 injections; a right one fails with a chance below 10⁻⁶."""
    chance = fixed_bytes("injection")
    times = 12_000
    counts = Counter(
        tuple(injection([b"a", b"b"], [3, 5, 8, 9], chance).values()) for _ in range(times)
    )
    assert set(counts) == set(itertools.permutations([3, 5, 8, 9], 2))
    expected = times / 12
    assert sum((each - expected) ** 2 / expected for each in counts.values()) < 52.0


def test_what_was_given_is_on_disk_before_it_is_used_and_never_changes(tmp_path: Path) -> None:
    kept = state(tmp_path)
    before = slots(kept, PEOPLE, fixed_bytes("x"))
    for change in (
        "UPDATE slots SET slot = 11",
        "DELETE FROM slots",
        "INSERT OR REPLACE INTO slots (individual, slot) SELECT randomblob(32), slot FROM slots",
        "INSERT OR REPLACE INTO slots (individual, slot) SELECT individual, 11 FROM slots",
        "UPDATE identity SET key = randomblob(32)",
        "DELETE FROM identity",
    ):
        with pytest.raises(Exception, match="slots are given for ever"):
            kept.file.database.execute(change)
    kept.close()

    again = state(tmp_path)
    assert slots(again, PEOPLE, fixed_bytes("another")) == before
    again.close()


async def test_a_phone_needs_no_id_but_keeps_to_one_once_it_has_one(tmp_path: Path) -> None:
    for name in ("first without", "first with"):
        phone = World(tmp_path / name, 1, others=11)
        alone = Records(COLUMNS, np.array([[40.0, 80.0]]), np.array([0, 1]))
        named = records_of({"patient-anne": [40.0]})
        ways = [alone, named] if name == "first without" else [named, alone]
        holder = phone.holder(records=ways[0])
        assert ages(holder) == {0: [40.0]}
        await answer_a_round(phone, holder)
        assert spending.spent(state_of(holder).file).charged
        await holder.close()
        with pytest.raises(ValueError, match=r"ids came .*from none"):
            phone.holder(records=ways[1])


async def test_of_several_slots_none_is_given_to_a_record_without_an_id(world: World) -> None:
    alone = Records(COLUMNS, np.array([[40.0, 80.0]]), np.array([0, 1]))
    with pytest.raises(ValueError, match="12 slots, and a record without an id"):
        world.holder(records=alone)
    assert set(await opened(world, EVERYBODY)) == set(range(SLOTS))  # nothing was begun


def test_where_records_are_mapped_no_others_are_taken(tmp_path: Path) -> None:
    assert records_in(tmp_path) == tmp_path / "records.csv"
    for name in ("records.toml", "records.csv"):
        (tmp_path / name).touch()
    assert records_in(tmp_path) == tmp_path / "records.npz"
    for records in ("records.csv", "records.npz"):
        files = dict.fromkeys(
            ("party", "consortium", "data", "agent_key", "agent_policy"), tmp_path
        )
        settings = Settings(agent_records=tmp_path / records, **files)
        with pytest.raises(ValueError, match="run `shoal records load`"):
            from_files(settings, sources=Sources(no_noise), isolation="none")


async def answer_a_round(world: World, holder: DataHolder) -> None:
    request = world.submit()
    await holder.step()
    world.announce(request)
    await holder.step()


async def test_a_round_sums_everybodys_records_and_nothing_that_leaves_has_an_id(
    world: World,
) -> None:
    told: list[str] = []

    def report(event: str, /, **facts: object) -> None:
        told.append(repr((event, facts)))

    records = records_of({name: [40.0 + place] for place, name in enumerate(PEOPLE)})
    holder = world.holder(records=records, report=report)
    shown = [repr(records), repr(vault_of(holder)._site)]
    await answer_a_round(world, holder)
    told.append(repr(await holder.status()))
    await holder.close()

    by_hand = sum(QUERY.encode(rows_at(records, place, COLUMNS)) for place in range(len(PEOPLE)))
    assert np.array_equal(world.total([0]), by_hand)
    sent = [bytes(each.request.url.raw_path) + each.body for each in world.wire.log]
    kept = [path.read_bytes() for path in (world.directory / "holder").iterdir() if path.is_file()]
    assert len(sent) > 3
    assert kept
    assert not any(b"patient-" in each for each in sent + kept)
    assert not any("patient-" in each for each in told + shown)


def charge(number: int, *slots: int) -> RoundCharged:
    """Return what a node says of a round of its own job that asked these slots."""
    return RoundCharged(
        entry=number + 1,
        round=f"{number:064x}",
        job="2b" * 32,
        number=number,
        mu=0.5,
        epsilon=None,
        clients=encode_clients(BitMap(slots)),
    )


def restore(world: World) -> None:
    (world.directory / "holder").mkdir(exist_ok=True)
    restore_file(
        world.directory / "holder" / STATE_FILE,
        authority=world.consortium.manifest.authority,
        random_bytes=world.random_bytes,
        now=world.clock(),
    )


async def mu_by_slot(holder: DataHolder) -> dict[int, float]:
    committed = await holder.committed()
    return {slot: committed[slot].mu for slot in range(SLOTS)}


async def test_without_the_map_every_slot_starts_at_the_largest_charge_of_any(
    world: World,
) -> None:
    """Not at the sum of all rounds: nobody was in two slots."""
    world.nodes[0].charged += [charge(0, 3), charge(1, 3, 4), charge(2, 5)]
    restore(world)
    holder = world.holder(records=records_of(EVERYBODY))
    await holder.step()
    assert await mu_by_slot(holder) == pytest.approx(dict.fromkeys(range(SLOTS), 0.5**0.5))
    await holder.close()


async def test_by_an_old_map_whom_it_knows_pays_the_own_charges_and_all_others_the_largest(
    world: World,
) -> None:
    old = {name: EVERYBODY[name] for name in PEOPLE[:3]}
    holder = world.holder(records=records_of(old))
    await holder.step()
    known = dict(state_of(holder).file.rows("SELECT individual, slot FROM slots"))
    await holder.close()
    lost, other = sorted(set(range(SLOTS)) - set(known.values()))[:2]
    dear, cheap, _ = known.values()
    world.nodes[0].charged += [
        *(charge(number, dear) for number in range(4)),
        *(charge(number, lost, cheap) for number in (4, 5)),
        charge(6, other),
    ]
    holder = world.holder(records=records_of(EVERYBODY))  # set back: newcomers get slots
    with pytest.raises(MemoryLost):
        await holder.step()
    await holder.close()

    restore(world)
    holder = world.holder(records=records_of(EVERYBODY))
    await holder.step()
    found = await holder.committed()
    assert found[dear].mu == pytest.approx(1.0)
    assert found[cheap].mu == pytest.approx(0.5**0.5)
    strangers = set(range(SLOTS)) - set(known.values())
    assert {slot: found[slot].mu for slot in strangers} == pytest.approx(
        dict.fromkeys(strangers, 0.5**0.5)
    )
    await holder.close()

    again = world.holder(records=records_of(EVERYBODY))
    await again.step()
    assert await again.committed() == found
    await again.close()


async def test_slots_that_are_given_after_a_restore_start_at_the_largest_charge_too(
    world: World,
) -> None:
    world.nodes[0].charged.append(charge(0, 3))
    restore(world)
    holder = world.holder(records=records_of(EVERYBODY))
    await holder.step()
    grown = BitMap(range(SLOTS + 4))
    raise_to_least(state_of(holder), grown, world.clock())
    found = state_of(holder).committed().of(grown)
    assert {slot: found[slot].mu for slot in grown} == pytest.approx(dict.fromkeys(grown, 0.5))
    await holder.close()
