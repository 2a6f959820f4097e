"""A data holder's program of a release before meets what a later one took."""

import sqlite3
from contextlib import closing
from pathlib import Path

from shoal_holder.rounds import UNREADABLE
from shoal_protocol.wire.encoding import canonical_json, parse_canonical_json
from tests.world.federation import Federation
from tests.world.trust import Trust


async def test_an_open_round_with_unknown_fields_ends_and_holds_up_nothing(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path) as federation:
        job, round_id = await federation.collecting()

        async def taken() -> bool:
            [seen] = (await federation.holder("clinic-a").status()).jobs
            return bool(seen.rounds)

        federation.wire.cut("clinic-a", "compute-1")  # so that its answer stays to be sent
        await federation.until(taken)
        await federation.crash("clinic-a")
        [state] = (tmp_path / "clinic-a").glob("*.sqlite")
        with closing(sqlite3.connect(state)) as database, database:
            [[spec]] = database.execute("SELECT spec FROM rounds WHERE round = ?", (round_id,))
            value = parse_canonical_json(spec)
            value["body"]["added"] = "later"
            database.execute("UPDATE rounds SET spec = ?", (canonical_json(value),))
        await federation.step()
        [seen] = (await federation.holder("clinic-a").status()).jobs
        assert [each.ended for each in seen.rounds] == [UNREADABLE]
        await federation.finish(job)
        await federation.learn()
