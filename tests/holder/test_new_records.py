"""A vault that is started anew uses the records that the loader wrote since."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from shoal_holder import frames
from shoal_holder.messages import AskAgenda
from shoal_holder.opening import from_files
from shoal_holder.records import chosen_together
from shoal_holder.settings import Settings
from shoal_holder.site import Sources
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


@contextmanager
def opened(settings: Settings) -> Iterator[Vault]:
    vault = from_files(settings, sources=Sources(no_noise), isolation="none")
    try:
        yield vault
    finally:
        vault.close()


def ages(vault: Vault) -> dict[int, float]:
    """Return {slot: age} of those who have a record."""
    site: Any = vault._site
    positions = site.positions()
    values, there = chosen_together(site.records, list(positions.values()), ("age",), most=1)
    ages = zip(positions, values[:, 0, 0], there[:, 0], strict=True)
    return {slot: float(age) for slot, age, is_there in ages if is_there}


def test_new_records_are_used_from_the_next_start_on_and_ids_keep_their_slots(
    by_id: Settings,
) -> None:
    with opened(by_id) as vault:
        before = ages(vault)
        load(by_id, SECOND, second=2)
        vault.answer(frames.encode(AskAgenda()))
        assert ages(vault) == before
    [slot_of_b] = [slot for slot, age in before.items() if age == 47]

    with opened(by_id) as vault:
        after = ages(vault)
    assert sorted(after.values()) == [48, 64]
    assert after[slot_of_b] == 48
    [slot_of_c] = [slot for slot, age in after.items() if age == 64]
    assert slot_of_c not in before  # the slot of who is gone is nobody else's


@pytest.mark.parametrize("people", [13, 0], ids=["too many people", "no file"])
def test_records_that_cannot_be_used_are_refused_without_quoting_them(
    by_id: Settings, people: int
) -> None:
    if people:
        load(by_id, {f"patient-{each}": (40, 120) for each in range(people)}, second=2)
    else:
        (by_id.party / "records.npz").write_bytes(b"SECRET")
    with pytest.raises(ValueError) as refused, opened(by_id):
        pass
    fault = str(refused.value)
    assert not any(secret in fault for secret in ("patient-", "SECRET"))
    assert not people or not re.search(r"\d|\bone\b", fault)


def test_a_table_with_texts_in_place_of_numbers_is_refused_without_quoting_one(
    by_id: Settings,
) -> None:
    path = by_id.party / "records.npz"
    with np.load(path) as arrays:
        columns = dict(arrays)
    np.savez(path, **columns | {"column0": np.array(["SECRET"] * len(columns["column0"]))})
    with pytest.raises(ValueError, match="no table of records") as refused, opened(by_id):
        pass
    assert "SECRET" not in str(refused.value)
