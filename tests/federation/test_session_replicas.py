"""A Compute node of several replicas over one PostgreSQL keeps no session, and boxes serve it."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

from shoal_compute import assembly as compute
from shoal_hosting.party import load_party
from shoal_protocol.sharing.session_envelope import is_under_session
from tests.federation.test_sessions import HOLDERS, finish, openings
from tests.world.federation import Federation, Running
from tests.world.lives import Life
from tests.world.trust import SITES, Trust

CLIENTS = sum(SITES.values())
NODE = "compute-1"
REPLICAS = 3


class Replicated(Federation):
    """A federation of which one node is several replicas that take requests in turn."""

    def __init__(self, database_url: str, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._database_url = database_url

    def _service(self, name: str, life: Life) -> Running:
        if name != NODE:
            return super()._service(name, life)
        replicas = [
            compute.assemble(
                party=load_party(self.trust.directory / "parties" / name),
                book=self._book(name),
                data_directory=self._data(f"{name}-{number}"),
                database_url=self._database_url,
                clock=self.clock.of(name),
                transport=self.wire.of(life),
            )
            for number in range(REPLICAS)
        ]
        turns = itertools.cycle(replicas)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await next(turns).app(scope, receive, send)

        async def step() -> None:
            for replica in replicas:
                await replica.step()

        async def close() -> None:
            for replica in replicas:
                await replica.close()

        self.wire.apps[name] = app
        return Running(life, step, close, replicas[0])


async def test_a_node_of_replicas_refuses_sessions_and_its_jobs_end_by_sealed_boxes(
    trust: Trust, tmp_path: Path, postgresql_url: str
) -> None:
    async with Replicated(postgresql_url, trust, tmp_path, holders=HOLDERS) as federation:
        for _ in range(REPLICAS):
            assert (await federation.ask(NODE, "/v1/prekey")).status_code == 409
        job = await federation.submit(wrapping="session")
        assert await finish(federation, job) == CLIENTS
        found = Counter(
            (message.receiver == NODE, is_under_session(message.body))
            for message in federation.wire.log
            if message.path.endswith("/shares")
        )
        assert found == {(True, False): len(SITES), (False, True): 2 * len(SITES)}
        named = {each.node for opening in openings(federation) for each in opening.keys}
        assert named == {"compute-0", "compute-2"}
        for replica in range(REPLICAS):
            assert not (tmp_path / f"{NODE}-{replica}" / "sessions.json").exists()
