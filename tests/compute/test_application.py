"""The node's HTTP face: what it shows to an operator, and what it never shows."""

from tests.world.around_node import Federation, envelopes


async def test_metrics_count_and_name_nobody(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec, range(11))
    await federation.upload(0, spec, envelopes(spec.body, 3)[0])
    before = (await federation.request(0, "GET", "/metrics")).text
    assert 'shoal_compute_rounds{phase="collecting"} 1.0' in before
    federation.clock.move(60)
    await federation.step(times=3)
    lines = (await federation.request(0, "GET", "/metrics")).text.splitlines()
    assert "shoal_compute_shares_stored_total 11.0" in lines
    assert 'shoal_compute_rounds{phase="collecting"} 0.0' in lines
    labels = {
        part.split("=")[0]
        for line in lines
        if "{" in line and not line.startswith("#")
        for part in line[line.index("{") + 1 : line.index("}")].split(",")
    }
    assert labels <= {"phase", "outcome", "le", "method", "route", "status", "peer"}
    assert not any("compute-" in line for line in lines if "peer_clock_offset" not in line)
    assert not any(spec.digest in line for line in lines)
