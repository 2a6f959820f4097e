"""The load and the soak as they are run: real processes, TLS, some hundred clients."""

from pathlib import Path

import pytest

from bench import soak

CLIENTS, SAMPLE, NODES = 300, 30, 2


def test_a_load_goes_all_the_way_and_everything_is_counted_once(tmp_path: Path) -> None:
    found = soak.measure(tmp_path, clients=CLIENTS, sample=SAMPLE, features=9, jobs=2, nodes=NODES)
    bulk, single = found["bulk"], found["single"]
    assert [job["cohort_size"] for job in bulk["jobs"]] == [CLIENTS] * 2
    assert [job["cohort_size"] for job in single["jobs"]] == [SAMPLE]
    # two jobs of two requests at each node, and one request for each envelope of the sample
    assert bulk["requests"]["bulk upload"]["count"] == 2 * 2 * NODES
    assert single["requests"]["upload"]["count"] == SAMPLE * NODES
    assert "upload" not in bulk["requests"] and "bulk upload" not in single["requests"]
    assert single["bytes_per_client"] > bulk["bytes_per_client"] > 8 * 66
    assert bulk["failures"] == single["failures"] == {}
    for job in bulk["jobs"] + single["jobs"]:
        assert len(job["uploads_per_second"]) == NODES
        assert min(*job["uploads_per_second"], job["joins_per_second"]) > 0
    on_disk = found["bytes on disk for one share, by node"]
    assert set(on_disk) == {"compute-0", "compute-1"}
    assert found["shares acknowledged"] == (2 * CLIENTS + SAMPLE) * NODES
    assert found["lost"] == found["counted twice"] == 0
    assert soak.verdict(found) == "all held"


@pytest.mark.parametrize(
    ("job", "stored", "said"),
    [
        ({}, 9, "1 shares were lost"),
        ({}, 11, "1 shares were counted twice"),
        ({"cohort_size": 9}, 10, "2 shares were lost"),
        ({"cohort_size": 11}, 10, "2 shares were counted twice"),
        ({"complete": 9, "cohort_size": 9}, 10, "1 clients did not go the whole way"),
        ({"refused_envelopes": 3}, 10, "3 envelopes were refused"),
    ],
)
def test_a_soak_says_what_did_not_hold(job: dict[str, int], stored: int, said: str) -> None:
    as_it_should = dict.fromkeys(("clients", "joined", "complete", "cohort_size"), 10)
    figures = {
        "jobs": [as_it_should | {"refused_envelopes": 0} | job],
        "nodes": {"compute-0": {"stored_shares": 10}, "compute-1": {"stored_shares": stored}},
    }
    assert soak.verdict(soak.judge([figures])) == f"DID NOT HOLD: {said}"
