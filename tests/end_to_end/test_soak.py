"""The load and the soak as they are run: real processes, TLS, some hundred clients."""

from pathlib import Path

import pytest

from bench import soak

CLIENTS, NODES = 300, 2


def test_a_load_goes_all_the_way_and_everything_is_counted_once(tmp_path: Path) -> None:
    found = soak.measure(tmp_path, clients=CLIENTS, features=9, jobs=2, nodes=NODES)
    load = found["load"]
    assert [job["cohort_size"] for job in load["jobs"]] == [CLIENTS] * 2
    assert load["requests"]["upload"]["count"] == 2 * NODES  # one envelope for each node and job
    assert load["requests"]["join"]["count"] == 2
    assert load["failures"] == {}
    assert set(found["bytes on disk, by node"]) == {"compute-0", "compute-1"}
    assert found["shares acknowledged"] == 2 * NODES
    assert found["lost"] == found["counted twice"] == 0
    assert soak.verdict(found) == "all held"


@pytest.mark.parametrize(
    ("job", "stored", "said"),
    [
        ({}, 0, "1 shares were lost"),
        ({}, 2, "1 shares were counted twice"),
        ({"cohort_size": 9}, 1, "2 shares were lost"),
        ({"cohort_size": 11}, 1, "2 shares were counted twice"),
        ({"complete": 9, "cohort_size": 9}, 1, "1 clients did not go the whole way"),
        ({"refused_envelopes": 3}, 1, "3 envelopes were refused"),
    ],
)
def test_a_soak_says_what_did_not_hold(job: dict[str, int], stored: int, said: str) -> None:
    as_it_should = dict.fromkeys(("clients", "joined", "complete", "cohort_size"), 10)
    figures = {
        "jobs": [as_it_should | {"refused_envelopes": 0} | job],
        "nodes": {"compute-0": {"stored_shares": 1}, "compute-1": {"stored_shares": stored}},
    }
    assert soak.verdict(soak.judge([figures])) == f"DID NOT HOLD: {said}"
