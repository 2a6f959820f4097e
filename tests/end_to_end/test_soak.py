"""The load and the soak as they are run: real processes, TLS, some hundred clients."""

from pathlib import Path

from bench import soak

CLIENTS, NODES = 300, 2


def test_a_load_goes_all_the_way_and_everything_is_counted_once(tmp_path: Path) -> None:
    found = soak.measure(tmp_path, clients=CLIENTS, features=9, jobs=2, nodes=NODES)
    load = found["load"]
    assert [job["cohort_size"] for job in load["jobs"]] == [CLIENTS] * 2
    assert load["requests"]["upload"]["count"] == 2 * NODES  # one envelope for each node and job
    assert load["requests"]["membership"]["count"] == 2
    assert load["failures"] == {}
    assert found["shares acknowledged"] == 2 * NODES
    assert found["lost"] == found["counted twice"] == 0
    assert found["did not hold"] == []
