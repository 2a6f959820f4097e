"""A peer's clock that is off is shown to the operator, and believed by nobody."""

from datetime import timedelta

from tests.world.around_node import Federation
from tests.world.examples import OPENED_AT

SECOND = timedelta(seconds=1)


async def test_clocks_that_are_minutes_apart_lose_no_round(federation: Federation) -> None:
    spec = federation.spec(deadline=OPENED_AT + 600 * SECOND, give_up_at=OPENED_AT + 900 * SECOND)
    await federation.announce(spec)
    await federation.upload_all(spec, range(11))
    federation.clock.skew_seconds = {"compute-0": 200.0, "compute-1": -200.0}
    federation.clock.move(620)  # node 1 thinks that there are minutes to go
    for _ in range(3):  # the round's hub may be the one that waits: others are told in its place
        await federation.step()
        federation.clock.move(2)
    await federation.step()
    assert await federation.phases(spec) == ["published"] * 3
    metrics = (await federation.request(0, "GET", "/metrics")).text
    assert 'peer_clock_offset_seconds{peer="compute-1"} -400.0' in metrics
