"""A trainer does not start on a ledger that is whole and not that of the rounds on file."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from shoal_kit.startup import StartupRefused
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_trainer.assembly import Service
from shoal_trainer.schema import ledger as tables
from tests.service.test_ledger import EMPTIED, rewrite, tamper
from tests.trainer.conftest import Assemble
from tests.trainer.test_jobs import running, state
from tests.world.clock import HandMovedClock


@pytest.fixture
async def engine(trainer: Service, clock: HandMovedClock) -> Engine:
    """The database of a trainer that has finished a job."""
    await running(trainer, clock)
    assert (await state(trainer))["phase"] == "finished"
    return engine_of(trainer)


def engine_of(service: Service) -> Engine:
    return service.resources.storage._engine


def entries(engine: Engine) -> list[LedgerEntry]:
    with engine.begin() as db:
        return [each.entry for each in tables.after(db, 0)]


@pytest.mark.slow
def test_a_ledger_that_was_emptied_consistently_is_refused(
    engine: Engine, assembled: Assemble
) -> None:
    engine = engine_of(assembled())  # whole, it starts
    tamper(engine, "DELETE FROM ledger", EMPTIED)
    engine.dispose()
    with pytest.raises(StartupRefused, match=r"on file and not in the ledger.*restore"):
        assembled()


def test_a_charge_without_its_round_is_refused(engine: Engine, assembled: Assemble) -> None:
    tamper(engine, "DELETE FROM partial_sums", "DELETE FROM rounds")
    engine.dispose()
    with pytest.raises(StartupRefused, match="entry 1 charges a round that is not on file"):
        assembled()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"mu": 0.001}, r"is not what round .* on file costs"),
        (None, "may have released something"),
        ({"at": timedelta(seconds=1)}, "is another than the one in a release"),
    ],
)
def test_a_ledger_that_was_written_anew_is_refused(
    engine: Engine, assembled: Assemble, change: dict[str, object] | None, why: str
) -> None:
    honest = entries(engine)
    *before, last = honest
    rewrite(engine, tables, *honest)
    engine = engine_of(assembled())  # as it was
    if change is None:
        rewritten = [*honest, last.returned(after=last.head, at=last.at)]
    else:
        if "at" in change:
            change = {"at": last.at + timedelta(seconds=1)}
        rewritten = [*before, last.model_copy(update=change)]
    rewrite(engine, tables, *rewritten)
    engine.dispose()
    with pytest.raises(StartupRefused, match=why):
        assembled()
