"""Which tests and cases are for which of `make test`, `make test-all` and `make exhaustive`.

Of an enumeration named below, `make test-all` takes every so many cases. The stride is odd where a
test's cases are pairs of mechanisms, colours or moments: both are taken.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

# Whole federations: `make test` runs the first test of each file here.
SCENARIOS: Final = ("tests/federation/", "tests/scenarios/")
# Of a test with many cases `make test` takes so many, spread evenly; of a slow one the first.
MOST_CASES: Final = 8

EVERY: Final = {
    "tests/client/test_owner_console.py::test_its_pages_are_readable_in_a_browser": 3,
    "tests/client/test_planning.py::"
    "test_what_a_crowd_is_planned_to_err_by_is_what_a_simulation_errs_by": 2,
    "tests/client/test_rejection.py::test_a_uniform_close_to_its_chance_is_decided_exactly": 5,
    "tests/command/test_plan_command.py::test_a_plan_of_extreme_numbers_is_made_or_refused": 5,
    "tests/federation/test_analysts_console.py::test_pages_are_accessible_on_desk_and_phone": 3,
    "tests/federation/test_committees.py::"
    "test_a_node_that_never_comes_up_costs_nothing_by_threshold": 3,
    "tests/federation/test_committees.py::"
    "test_a_node_that_is_lost_once_it_attested_holdings_costs_the_round": 2,
    "tests/federation/test_crowd_clocks.py::"
    "test_a_clock_that_jumps_loses_nothing_acknowledged_and_accuses_nobody": 3,
    "tests/scenarios/test_crash_in_crowds.py::"
    "test_a_death_at_a_step_costs_nobody_more_and_loses_nothing_acknowledged": 3,
    "tests/federation/test_crowd_jobs.py::"
    "test_whatever_the_network_does_each_charge_is_one_contribution": 2,
    "tests/federation/test_damaged_databases.py::"
    "test_a_party_starts_with_all_it_acknowledged_or_says_what_to_do": 7,
    "tests/studies/test_kaplan_meier.py::test_what_is_said_holds_as_often_as_it_says": 3,
    "tests/federation/test_partitions_and_clocks.py::"
    "test_a_service_that_does_not_answer_in_time_around_the_deadline_delays_a_job": 3,
    "tests/federation/test_partitions_and_clocks.py::"
    "test_clocks_that_are_three_minutes_off_change_nothing": 3,
    "tests/service/test_vanished_host.py::"
    "test_the_successor_of_a_process_whose_host_vanished_waits_and_then_starts": 2,
    "tests/studies/test_families.py::"
    "test_intervals_hold_as_often_as_they_say_where_the_naive_ones_do_not": 3,
    "tests/studies/test_families.py::"
    "test_intervals_of_means_and_covariances_hold_as_often_as_they_say": 3,
    "tests/studies/test_hazards.py::test_intervals_that_are_trusted_hold_the_truth": 3,
    "tests/studies/test_hazards.py::test_with_little_noise_ratios_are_coxs_whatever_the_bounds": 3,
    "tests/studies/test_linear_regression.py::"
    "test_a_task_as_extreme_as_can_be_ends_in_a_posterior": 5,
    "tests/studies/test_measured_regressions.py::"
    "test_nine_of_ten_intervals_hold_about_nine_times_in_ten": 3,
    "tests/studies/test_pooling.py::test_intervals_of_slopes_and_of_sites_hold": 3,
    "tests/privacy/test_prediction_sensitivity.py::"
    "test_pitfall_15_a_search_reaches_the_sensitivity_and_never_exceeds_it": 3,
    "tests/privacy/test_score_sensitivity.py::"
    "test_pitfall_15_no_point_dispersion_or_cut_exceeds_the_sensitivity": 3,
    "tests/privacy/test_sensitivity.py::"
    "test_pitfall_15_a_search_reaches_the_sensitivity_and_never_exceeds_it_after_rounding": 5,
    "tests/privacy/test_sensitivity.py::"
    "test_pitfall_15_columns_with_extreme_bounds_do_not_exceed_the_sensitivity": 3,
    "tests/privacy/test_sensitivity.py::"
    "test_pitfall_15_no_term_exceeds_the_sensitivity_that_is_declared_of_its_column": 3,
    "tests/redteam/test_planted.py::test_a_planted_weakness_lets_the_attack_through": 2,
    "tests/trainer/test_retention.py::"
    "test_a_crash_after_any_part_leaves_a_state_from_which_deletion_goes_on": 3,
}


def mark_the_others(items: Iterable[pytest.Item]) -> None:
    """Mark as exhaustive all cases of these tests but the first of every so many."""
    seen: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in EVERY:
            if seen[name] % EVERY[name]:
                item.add_marker(pytest.mark.exhaustive)
            seen[name] += 1


def mark_the_rest(items: Iterable[pytest.Item]) -> None:
    """Mark with `rest` what `make test` leaves to `make test-all`."""
    files_begun: set[str] = set()
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("exhaustive"):
            continue
        file, name = item.nodeid.split("::")[0], item.nodeid.partition("[")[0]
        begins = item.nodeid.startswith(SCENARIOS) and file not in files_begun
        essential = begins or item.get_closest_marker("essential") is not None
        if not item.get_closest_marker("slow") or (essential and name not in cases):
            files_begun.add(file)
            cases.setdefault(name, []).append(item)
        else:
            item.add_marker(pytest.mark.rest)
    for of_one_test in cases.values():
        count = len(of_one_test)
        kept = {place * count // MOST_CASES for place in range(MOST_CASES)}
        for place, item in enumerate(of_one_test):
            if count > MOST_CASES and place not in kept:
                item.add_marker(pytest.mark.rest)
