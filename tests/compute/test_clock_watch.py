"""A peer's clock that is off is told to the operator, once, and believed by nobody."""

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from shoal_compute.gossip import ClockWatch
from shoal_compute.metrics import Metrics
from tests.world.around_node import Federation
from tests.world.examples import OPENED_AT

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("ahead", "round_trip", "warned"),
    [(0, 0, False), (4, 0, False), (-4, 0, False), (6, 0, True), (-6, 0, True), (6, 4, False)],
)
def test_the_operator_is_warned_of_more_than_a_few_seconds_and_the_time_under_way(
    ahead: float, round_trip: float, warned: bool
) -> None:
    registry = CollectorRegistry()
    watch = ClockWatch(Metrics(registry))
    received_at = OPENED_AT + round_trip * SECOND
    shown = OPENED_AT + (ahead + round_trip / 2) * SECOND
    with capture_logs() as logs:
        for _ in range(3):  # once is enough
            watch.note("compute-1", shown, OPENED_AT, received_at)
    assert [each["party"] for each in logs] == ["compute-1"] * warned
    labels = {"peer": "compute-1"}
    assert registry.get_sample_value("shoal_compute_peer_clock_offset_seconds", labels) == ahead


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
