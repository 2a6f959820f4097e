"""A data holder's files, and the consortium in memory that they belong to."""

from pathlib import Path

import pytest

from shoal_agent.client_files import write_holder_key
from shoal_consortium.consortium_files import create
from shoal_holder.settings import Settings
from tests.client.test_policy import RULES
from tests.world.around_holder import World
from tests.world.people import csv_of

CLIENTS = 12


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, CLIENTS)


@pytest.fixture
def settings(world: World) -> Settings:
    home = world.directory / "site"
    home.mkdir()
    create(
        world.directory / "consortium", world.consortium.signed_manifest, world.consortium.roster
    )
    write_holder_key(home / "holder.key", world.key, slots=CLIENTS)
    (home / "pin").write_text(world.consortium.digest + "\n")
    (home / "records.csv").write_text(csv_of(world.records))
    (home / "policy.toml").write_text(RULES)
    return Settings(
        party=home,
        consortium=world.directory / "consortium",
        data=world.directory / "data",
        agent_key=home / "holder.key",
        agent_records=home / "records.csv",
        agent_policy=home / "policy.toml",
    )
