"""A running vault goes over to the records that the loader wrote since, or stays with the old."""

import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shoal_agent.vault_link import VaultLink
from shoal_holder.messages import Opened
from shoal_holder.opening import from_files
from shoal_holder.records import chosen_together
from shoal_holder.settings import Settings
from shoal_holder.site import Sources
from shoal_holder.status import RECORDS_NOT_TAKEN, RECORDS_TAKEN
from shoal_holder.vault import Vault
from shoal_loader.loading import evaluate, write_table
from shoal_loader.mapping import Mapping
from tests.client.test_slots import no_noise

MAPPING = """
source = "visits.csv"
id = "patient"

[columns.age]
sql = "CAST(age AS DOUBLE)"

[columns.pressure]
sql = "CAST(pressure AS DOUBLE)"
"""
FIRST = {"patient-a": (31, 110), "patient-b": (47, 125)}
SECOND = {"patient-c": (64, 140), "patient-b": (48, 126)}  # one came, one went, one is older


def load(
    settings: Settings, people: dict[str, tuple[int, int]], *, second: int, visits: int = 1
) -> None:
    """Load records, at another second each time: file systems differ in how fine their time is."""
    home = settings.party
    rows = [f"{name},{age},{pressure}" for name, (age, pressure) in people.items()]
    (home / "visits.csv").write_text("\n".join(["patient,age,pressure", *rows * visits]) + "\n")
    path = write_table(home, evaluate(home, Mapping.from_directory(home)))
    os.utime(path, (second, second))


@pytest.fixture
def by_id(settings: Settings) -> Settings:
    (settings.party / "records.toml").write_text(MAPPING)
    load(settings, FIRST, second=1)
    return settings.model_copy(update={"agent_records": None})


@pytest.fixture
def vault(by_id: Settings) -> Iterator[Vault]:
    vault = from_files(by_id, sources=Sources(no_noise), isolation="none")
    yield vault
    vault.close()


class Courier:
    """Asks the vault as an agent does, and keeps what it is told."""

    def __init__(self, vault: Vault) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []
        self.link = VaultLink(vault, self._report)

    def _report(self, event: str, /, **facts: object) -> None:
        self.told.append((event, facts))

    async def step(self) -> Opened:
        await self.link.ask(Vault.due)
        return await self.link.ask(Vault.opened)


def ages(vault: Vault) -> dict[int, float]:
    """Return {slot: age} of those who have a record."""
    site: Any = vault._site
    positions = site.positions()
    values, there = chosen_together(site.records, list(positions.values()), ("age",), most=1)
    ages = zip(positions, values[:, 0, 0], there[:, 0], strict=True)
    return {slot: float(age) for slot, age, is_there in ages if is_there}


async def test_new_records_are_used_without_a_restart_and_ids_keep_their_slots(
    vault: Vault, by_id: Settings
) -> None:
    courier, before = Courier(vault), ages(vault)
    [slot_of_b] = [slot for slot, age in before.items() if age == 47]
    await courier.step()
    assert courier.told == []

    load(by_id, SECOND, second=2)
    assert (await courier.step()).records_fault is None

    after = ages(vault)
    assert sorted(after.values()) == [48, 64]
    assert after[slot_of_b] == 48
    [slot_of_c] = [slot for slot, age in after.items() if age == 64]
    assert slot_of_c not in before  # the slot of who is gone is nobody else's
    assert courier.told == [(RECORDS_TAKEN, {})]
    await courier.step()
    assert len(courier.told) == 1


@pytest.mark.parametrize("people", [13, 0], ids=["too many people", "no file"])
async def test_records_that_cannot_be_used_leave_the_old_ones_and_say_why_once(
    vault: Vault, by_id: Settings, people: int
) -> None:
    courier, before = Courier(vault), ages(vault)
    if people:
        load(by_id, {f"patient-{each}": (40, 120) for each in range(people)}, second=2)
    else:
        path = by_id.party / "records.npz"
        path.write_bytes(b"SECRET")
        os.utime(path, (2, 2))
    fault = (await courier.step()).records_fault

    assert ages(vault) == before
    assert fault is not None
    assert courier.told == [(RECORDS_NOT_TAKEN, {"reason": fault})]
    assert not any(secret in fault for secret in ("patient-", "SECRET"))
    assert not people or not re.search(r"\d|\bone\b", fault)
    await courier.step()
    assert len(courier.told) == 1

    load(by_id, SECOND, second=3)
    assert (await courier.step()).records_fault is None
    assert sorted(ages(vault).values()) == [48, 64]


async def test_a_table_with_texts_in_place_of_numbers_is_refused_without_quoting_one(
    vault: Vault, by_id: Settings
) -> None:
    path = by_id.party / "records.npz"
    with np.load(path) as arrays:
        columns = dict(arrays)
    np.savez(path, **columns | {"column0": np.array(["SECRET"] * len(columns["column0"]))})
    os.utime(path, (2, 2))
    fault = (await Courier(vault).step()).records_fault
    assert fault is not None and "no table of records" in fault and "SECRET" not in fault
