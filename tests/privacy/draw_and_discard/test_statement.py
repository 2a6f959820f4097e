"""What is stated to data holders: the local epsilon against everybody, less only where proven."""

import itertools
import sys
from pathlib import Path

import pytest

from figures.draw_and_discard.privacy import main, snapshot_epsilon, statement
from shoal.jobs.task_files import crowd_example
from tests.privacy.draw_and_discard.test_hiding import DELTA, make_task


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "clipping"),
    [("one", "coordinate"), ("one", "residual"), ("all", "coordinate"), ("feature", "residual")],
)
def test_listener_and_insider_have_the_local_epsilon_whatever_came_later(
    variant: str, clipping: str
) -> None:
    task = make_task(variant=variant, clipping=clipping)
    stated = statement(task, later=10**6, overlap=0, delta=DELTA)
    for each in stated.listener, stated.insider:
        assert (each.epsilon, each.delta) == (task.contribution_epsilon, 0.0)
    assert stated.latecomer.epsilon <= task.contribution_epsilon


def test_a_latecomer_is_promised_less_only_where_it_is_proven() -> None:
    unproven = make_task(variant="all", clipping="coordinate")
    latecomer = statement(unproven, later=10**6, overlap=0, delta=DELTA).latecomer
    assert (latecomer.epsilon, latecomer.delta) == (1.0, 0.0)
    assert "residual" in latecomer.reason
    proven = make_task(variant="all")
    early, late = (
        statement(proven, later=later, overlap=0, delta=DELTA).latecomer
        for later in (1000, 100_000)
    )
    assert (early.epsilon, early.delta) == (1.0, 0.0)
    assert "few" in early.reason
    assert late.epsilon < 0.1
    assert late.delta == DELTA
    assert "local epsilon" in late.reason


@pytest.mark.parametrize("overlap", [0, 20])
def test_after_so_many_submissions_that_an_honest_one_may_be_refused_fewer_count(
    overlap: int,
) -> None:
    # of 10^6 one is refused with a probability above DELTA e^-4: what 10^5 hide, they hide too
    task = make_task(variant="all", epsilon=4.0)
    early = snapshot_epsilon(task, later=10**5, overlap=overlap, delta=DELTA)
    for later in (10**6, 10**10, 10**12):
        claim = snapshot_epsilon(task, later=later, overlap=overlap, delta=DELTA)
        assert claim is not None
        assert claim[0] <= early[0]


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [0, 3])
def test_whoever_looks_still_later_learns_no_more(overlap: int) -> None:
    task = make_task(variant="one")
    claims = [
        snapshot_epsilon(task, later=later, overlap=overlap, delta=DELTA)[0]
        for later in (50_000 * 2**doublings for doublings in range(0, 17, 4))
    ]
    assert all(late <= early * (1.0 + 1e-9) for early, late in itertools.pairwise(claims))


def test_the_command_states_the_price_of_a_crowd_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "crowd.toml").write_text(crowd_example("linear"))
    options = ["--later", "100000", "--overlap", "50", "--delta", "1e-6"]
    monkeypatch.setattr(sys, "argv", ["privacy", str(tmp_path / "crowd.toml"), *options])
    main()
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in said] == ["I", "II", "III"]
