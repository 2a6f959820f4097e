"""A backup is opened by the recovery key alone, and a state restored from it forgets nothing."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from shoal_agent.assembly import Service
from shoal_agent.restoring import opened_backup, restore_state, write_recovery_key
from shoal_consortium.parties import next_manifest
from shoal_holder.backup import sealed_backup
from shoal_holder.restoring import RESTORED
from shoal_holder.site_files import owner_files_of
from shoal_holder.state import State
from shoal_kit.startup import StartupRefused
from shoal_protocol.trust.roster_changes import with_revoked
from tests.client.test_agent import start, work, world
from tests.client.test_charges import down
from tests.client.test_slots import EVERYBODY, records_of
from tests.world.around_holder import World, state_of, vault_of
from tests.world.examples import AUTHORITY

__all__ = ["world"]


def recovery_key(world: World, party: str = "party") -> Path:
    file = world.directory / f"{party}.recovery"
    write_recovery_key(world.directory / party, file, PrivateKey.generate())
    return file


def restore(
    world: World, backup: bytes, key: Path, *, party: str = "party", data: str = "restored"
) -> int:
    return restore_state(
        world.directory / party,
        world.directory / "consortium",
        world.directory / data,
        backup=(backup, key),
        random_bytes=world.random_bytes,
        now=world.clock(),
    )


def restart(world: World, **changes: str) -> Service:
    return start(world, SHOAL_DATA=str(world.directory / "restored"), **changes)


async def backup_of(world: World, rounds: int = 1) -> tuple[bytes, Path]:
    key, agent = recovery_key(world), start(world)
    for _ in range(rounds):
        await work(world, agent)
    sealed = await agent.holder.backup()
    await agent.close()
    return sealed, key


async def test_a_state_is_restored_from_a_backup_that_was_made_while_the_agent_ran(
    world: World,
) -> None:
    sealed, key = await backup_of(world)
    before = start(world)
    charged = await before.holder.chain()
    await before.close()

    assert restore(world, sealed, key) == 1
    agent = restart(world)
    for _ in range(2):  # it hears of the lost one, and raises the epoch
        await agent.step()
    status = await agent.holder.status()
    assert status.refusal is None
    assert [each.ended for each in status.jobs] == [RESTORED]
    assert await agent.holder.chain() == charged
    await work(world, agent)
    assert len(await agent.holder.chain()) == 2 * len(charged)  # a join and an answer each
    await agent.close()


async def test_a_backup_has_no_key_that_signs_and_nothing_that_is_still_to_be_sent(
    world: World,
) -> None:
    for node in range(3):
        world.wire.scripts[f"compute-{node}"] = down_but_for_charges(world, node)
    sealed, key = await backup_of(world)
    with sqlite3.connect(world.directory / "data" / "holder.sqlite") as state:
        unsent = [
            each for (each,) in state.execute("SELECT document FROM outbox WHERE kind = 'envelope'")
        ]
    state.close()
    backup = opened_backup(sealed, key, book=world.book, key=world.key)
    parts = [backup.state, *backup.files.values(), backup.padding]
    content = b"".join(parts)

    assert len(unsent) == 3
    assert not any(each[-64:] in content for each in unsent)
    assert bytes(world.key) not in content and bytes(world.key).hex().encode() not in content
    assert [*backup.files] == ["policy.toml"]
    assert not any(each[:16] in sealed for each in parts)


def down_but_for_charges(
    world: World, node: int
) -> Callable[[httpx.Request], httpx.Response | None]:
    return lambda request: None if request.url.path == "/v1/charges" else down(request)


async def test_who_has_which_slot_is_in_the_backup_with_the_key_that_tells_it(
    world: World,
) -> None:
    files = owner_files_of(world.directory / "party", world.directory / "policy.toml")
    key, holder = recovery_key(world), world.holder(records=records_of(EVERYBODY))
    await holder.step()
    told = ["SELECT key, id_column FROM identity", "SELECT * FROM slots ORDER BY slot"]
    found = [state_of(holder).file.rows(each) for each in told]
    authority = world.consortium.manifest.authority
    sealed = sealed_backup(
        state_of(holder).file,
        files,
        slots=0,
        authority=authority,
        key=world.key,
        now=world.clock(),
    )
    await holder.close()

    restore(world, sealed, key)
    with sqlite3.connect(world.directory / "restored" / "holder.sqlite") as state:
        assert [state.execute(each).fetchall() for each in told] == found
    state.close()
    assert len(found[1]) == len(EVERYBODY)


def test_the_length_of_a_backup_does_not_tell_how_many_individuals_there_are(
    world: World,
) -> None:
    files, key = (
        owner_files_of(world.directory / "party", world.directory / "policy.toml"),
        world.key,
    )
    recovery_key(world)
    lengths = set()
    for given in (0, 1, 150, 5_000, 10_000):
        (world.directory / str(given)).mkdir()
        state = State(world.directory / str(given) / "holder.sqlite", authority="00" * 32)
        rows = [(bytes([place % 251]) * 28 + place.to_bytes(4), place) for place in range(given)]
        with state.file.transaction():
            state.file.database.executemany("INSERT INTO slots VALUES (?, ?, 0)", rows)
        sealed = sealed_backup(
            state.file, files, slots=10_000, authority="00" * 32, key=key, now=world.clock()
        )
        lengths.add(len(sealed))
        state.close()
    assert len(lengths) == 1


async def test_the_length_of_a_revoked_data_holder_s_backup_does_not_tell_it_either(
    world: World,
) -> None:
    recovery_key(world)
    holder = world.holder(records=records_of(EVERYBODY))
    files = owner_files_of(world.directory / "party", world.directory / "policy.toml")
    vault_of(holder)._owner_files = files
    enrolled = await holder.backup()
    roster = with_revoked(world.consortium.roster, [0])
    later = next_manifest(world.consortium, roster=roster, authority=AUTHORITY)
    world.book.accept(later.encode(), roster.encode())
    assert (await holder.status()).enrolled == 0
    assert len(await holder.backup()) == len(enrolled)
    await holder.close()


def cut(sealed: bytes) -> bytes:
    return sealed[:-1]


def cut_short(sealed: bytes) -> bytes:
    return sealed[:60]


def changed(sealed: bytes) -> bytes:
    return sealed[:-100] + bytes([sealed[-100] ^ 1]) + sealed[-99:]


def something_else(sealed: bytes) -> bytes:
    return b"SQLite format 3\0" * 100


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (cut, "cut short or was changed"),
        (cut_short, "not sealed to"),
        (changed, "cut short or was changed"),
        (something_else, "not a backup"),
    ],
)
async def test_a_broken_backup_is_refused_and_nothing_is_changed(
    world: World, damage: Callable[[bytes], bytes], says: str
) -> None:
    sealed, key = await backup_of(world)
    before = everything(world)
    with pytest.raises(ValueError, match=says):
        restore(world, damage(sealed), key)
    assert everything(world) == before


async def test_another_recovery_key_opens_nothing(world: World) -> None:
    sealed, _ = await backup_of(world)
    (world.directory / "party" / "recovery.pub").unlink()
    (world.directory / "party.recovery").unlink()
    before = everything(world)
    with pytest.raises(ValueError, match="not sealed to"):
        restore(world, sealed, recovery_key(world))
    assert set(everything(world)) - set(before) == {"party/recovery.pub", "party.recovery"}


async def test_backups_of_other_data_holders_and_consortia_are_refused(world: World) -> None:
    key, holder = recovery_key(world), world.holder()
    files = owner_files_of(world.directory / "party", world.directory / "policy.toml")
    for authority, signer, says in (
        (world.consortium.manifest.authority, SigningKey.generate(), "another data holder"),
        ("00" * 32, world.key, "another consortium"),
    ):
        sealed = sealed_backup(
            state_of(holder).file,
            files,
            slots=0,
            authority=authority,
            key=signer,
            now=world.clock(),
        )
        before = everything(world)
        with pytest.raises(ValueError, match=says):
            restore(world, sealed, key)
        assert everything(world) == before
    await holder.close()


async def test_a_state_that_is_there_is_never_replaced_by_a_backup(world: World) -> None:
    sealed, key = await backup_of(world)
    before = everything(world)
    with pytest.raises(ValueError, match="sqlite is there"):
        restore(world, sealed, key, data="data")
    assert everything(world) == before


async def test_a_restore_that_was_cut_off_starts_no_agent_until_it_is_ended(world: World) -> None:
    sealed, key = await backup_of(world)
    backup = opened_backup(sealed, key, book=world.book, key=world.key)
    (world.directory / "restored").mkdir()
    (world.directory / "restored" / "holder.sqlite").write_bytes(backup.state)
    with pytest.raises(StartupRefused, match="mark"):
        restart(world)


def everything(world: World) -> dict[str, bytes]:
    """Return all files but the lock and the directory of the data that a restore begins with."""
    return {
        str(path.relative_to(world.directory)): path.read_bytes()
        for path in world.directory.rglob("*")
        if path.is_file()
    }
