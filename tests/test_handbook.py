"""The handbook's procedures are complete and typed as they stand; drills do them in mid-job.

`tests/end_to_end/test_handbook.py` does every step of every procedure. The drills named here do the
same while jobs run, and count what came of it.
"""

import re
from typing import Final

import pytest

from tests.command.running import parser
from tests.world.handbook import PAGE, commands, procedures
from tests.world.named_tests import exists

IN_MID_JOB: Final = {
    "Install a node": ["federation/test_drills.py::test_a_node_is_installed_while_a_job_runs"],
    "Enrol a data holder": [
        "command/test_command.py::test_organisations_make_their_parties_and_the_services_accept_the_consortium",
        "federation/test_consortium_changes.py::test_the_next_job_is_open_to_who_was_enrolled_and_not_to_who_was_revoked",
    ],
    "Rotate the keys of a service": [
        "end_to_end/test_life_cycle.py::test_all_keys_change_while_a_job_runs_and_its_certificate_holds"
    ],
    "Renew a box key": [
        "service/test_standing.py::test_an_operator_is_asked_for_a_new_box_key_once_the_one_in_force_is_old",
        "service/test_standing.py::test_replaced_box_and_tls_keys_are_erased_once_no_open_round_needs_them",
    ],
    "Renew a certificate": [
        "end_to_end/test_certificate_ends.py::test_a_party_whose_certificate_ended_is_cut_off_until_it_is_renewed",
        "service/test_standing.py::test_the_end_of_a_certificate_is_told_for_sixty_days_once_a_day",
    ],
    "Replace a node": [
        "federation/test_drills.py::test_a_node_is_replaced_by_one_of_another_name_and_its_job_submitted_anew",
        "federation/test_parties_change.py::test_a_trainer_whose_place_another_took_ends_what_it_began",
        "federation/test_parties_change.py::test_a_round_ends_at_the_aggregator_that_it_began_with",
    ],
    "Back up": [
        "command/test_backups.py::test_a_backup_among_writes_is_the_state_of_one_moment",
        "command/test_backups.py::test_a_backup_that_is_killed_leaves_the_older_file_or_none",
        "command/test_backups.py::test_a_state_in_postgresql_is_backed_up_by_its_own_tools_as_is_said",
    ],
    "Restore": [
        "end_to_end/test_drills.py::test_a_node_whose_disk_is_lost_in_a_round_goes_on_from_its_backup",
        "end_to_end/test_drills.py::test_a_disk_that_is_lost_in_a_round_is_restored",
        "federation/test_backups.py::test_a_service_whose_disk_is_lost_in_a_round_goes_on_from_its_backup",
        "federation/test_backups.py::test_an_older_backup_exceeds_no_cap_and_signs_no_second_history",
        "scenarios/test_set_back.py::test_a_node_that_was_set_back_whole_charges_nothing_until_that_is_accepted_by_name",
    ],
    "Upgrade": [
        "service/test_storage.py::test_a_schema_of_another_version_is_refused",
        "federation/test_damaged_databases.py::test_a_party_starts_with_all_it_acknowledged_or_says_what_to_do",
    ],
    "Monitor": [
        "command/test_journal_command.py::test_what_is_new_since_the_last_time_is_counted",
        "test_monitoring.py::test_each_alert_goes_off_in_its_own_trouble_and_none_in_a_healthy_federation",
    ],
    "Retire a node": [
        "federation/test_parties_change.py::test_a_job_goes_on_without_a_node_that_was_retired",
        "service/test_standing.py::test_a_retired_party_is_told_when_it_may_be_switched_off",
    ],
    "The key of a service is lost": [
        "end_to_end/test_life_cycle.py::test_agents_that_were_off_while_all_certificates_changed_find_their_way"
    ],
    "The key of the authority is lost": [
        "federation/test_drills.py::test_the_recovery_key_stands_in_for_a_lost_authority_while_a_job_runs"
    ],
    "Too few nodes are left to sign": [
        "federation/test_drills.py::test_too_few_nodes_left_are_replaced_in_an_emergency",
    ],
    "A node is compromised": [
        "federation/test_drills.py::test_a_node_is_replaced_by_one_of_another_name_and_its_job_submitted_anew",
        "federation/test_parties_change.py::test_an_old_key_signs_nothing_of_a_later_version",
    ],
    "A release is wrong": [
        "federation/test_drills.py::test_a_wrong_release_stands_beside_its_correction_and_both_are_paid",
        "federation/test_leaving.py::test_a_withdrawal_while_a_round_runs_leaves_its_price_with_who_answered",
        "federation/test_parties_change.py::test_a_stricter_policy_ends_a_job_that_does_not_keep_to_it",
        "command/test_certificate_command.py::test_what_does_not_hold_ends_with_status_1_and_the_reason",
    ],
}


def anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def test_what_drills_do_is_in_the_page() -> None:
    assert set(IN_MID_JOB) <= set(procedures())
    for each in (test for tests in IN_MID_JOB.values() for test in tests):
        assert exists(f"tests/{each}"), each


def test_every_symptom_leads_to_a_heading_and_every_link_within_the_page() -> None:
    text = PAGE.read_text()
    headings = {anchor(each) for each in re.findall(r"^## (.*)$", text, re.MULTILINE)}
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert set(links) <= headings
    symptoms = text.split("## What you see\n")[1].split("\n## ")[0]
    rows = [row for row in symptoms.splitlines() if row.startswith("|")][2:]
    assert len(rows) >= 10


@pytest.mark.parametrize("heading", procedures())
def test_every_step_says_what_to_see_and_what_to_do_else(heading: str) -> None:
    for step in procedures()[heading]:
        if step.command:
            assert re.search(r"^    (You see |The terminal .* then )", step.text, re.MULTILINE), (
                step
            )
            assert re.search(r"^    Else: ", step.text, re.MULTILINE), step


@pytest.mark.parametrize("heading", procedures())
def test_the_command_line_takes_every_command_as_it_stands(heading: str) -> None:
    for words in commands(heading):
        command = parser()
        rest = list(words)
        while hasattr(command, "commands"):
            command = command.commands[rest.pop(0)]
        command.make_context(words[-1], rest)  # raises what a user would be told of a wrong one
