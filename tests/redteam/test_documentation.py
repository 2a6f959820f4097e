"""docs/redteam.md lists every attack as the code states it, and what it points to exists."""

import re
from pathlib import Path

from shoal_redteam.attack import Attack
from shoal_redteam.findings import THREAT_MODEL
from shoal_redteam.registry import all_attacks

ROOT = Path(__file__).parents[2]


def row(attack: Attack) -> str:
    return f"| `{attack.name}` | {attack.liar} | {attack.tries} | {attack.stopped_by} |"


def test_the_page_has_one_row_for_every_attack_as_the_registry_states_it() -> None:
    page = (ROOT / "docs/redteam.md").read_text().splitlines()
    rows = [line for line in page if re.match(r"\| `[a-z][a-z-]+` \|", line)]
    assert rows == [row(attack) for attack in all_attacks()]


def test_what_the_findings_point_to_exists() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "redteam").rglob("*.py"))
    headings = re.findall(r'where=f"\{THREAT_MODEL\}, ([^"]+)"', sources)
    page = (ROOT / THREAT_MODEL).read_text()
    assert headings
    assert all(re.search(rf"^#+ {re.escape(each)}$", page, re.MULTILINE) for each in headings)
