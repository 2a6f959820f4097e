"""What cannot be undone is shown and asked about before it is done, and parties have names."""

import json
from pathlib import Path

import pytest

from shoal_agent.client_files import read_enrolment
from shoal_kit.manifest_chain import open_chain
from shoal_protocol.trust.roster import key_fingerprint
from tests.command.running import run, shoal
from tests.command.test_command import consortium, contents, parties

__all__ = ["consortium", "parties"]  # fixtures


def asking(consortium: Path) -> dict[str, tuple[list[object], list[str]]]:
    """Return irrevocable commands by their names, each with what it must show before it is done."""
    home = consortium.parent
    lost = home / "clinic" / "holder.key.enrolment"
    named = key_fingerprint(bytes(read_enrolment(lost).key))
    shoal("agent", "new", home / "again", "--slots", 4)
    card = json.loads(shoal("party", "rotate", home / "node-a", "--json").stdout)["card"]
    by = [consortium, "--authority", home / "authority"]
    new = home / "again" / "holder.key.enrolment"
    holder = [f"data holder {named}", "slots 0 to 3", "enrolled by version 1"]
    return {
        "revoke": ([*by, named], ["revokes for good", *holder]),
        "replace": ([by[0], lost, new, *by[1:]], ["replaces for good the key of", *holder]),
        "change": (
            [*by, "--minimum-cohort", 9, "--card", card],
            [
                "policy minimum_cohort: 3 → 9",
                "Compute node node-a verify_key: ",
                "Compute node node-a certificate: SHA-256 ",
            ],
        ),
        "move-authority": ([*by, "--to", home / "heir"], ["authority: ", " → "]),
    }


@pytest.mark.parametrize("name", ["revoke", "replace", "change", "move-authority"])
def test_what_a_version_ends_for_good_is_shown_and_asked(consortium: Path, name: str) -> None:
    arguments, shows = asking(consortium)[name]
    before = contents(consortium.parent)
    nobody = run("consortium", name, *arguments, asked=None)
    assert nobody.exit_code == 1
    assert "nothing was done" in nobody.stderr and "--yes" in nobody.stderr
    for answer in ("n", "", "perhaps"):
        refusing = run("consortium", name, *arguments, asked=answer)
        assert refusing.exit_code == 1 and "nothing was done" in refusing.stderr
        for each in shows:
            assert each in refusing.stderr
    assert contents(consortium.parent) == before  # no version, no key, no directory

    done = run("consortium", name, *arguments, "--yes", "--json", asked=None)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sequence"] == 2
    for each in shows:
        assert each in done.stderr
    assert "[y/N]" not in done.stderr
    assert len(open_chain(consortium)) == 2
