"""docs/redteam.md names every attack, and what the findings point to exists."""

import re
from pathlib import Path

from shoal_redteam.findings import THREAT_MODEL
from shoal_redteam.registry import all_attacks

ROOT = Path(__file__).parents[2]


def test_the_page_names_every_attack_of_the_registry_once_and_no_other() -> None:
    page = (ROOT / "docs/redteam.md").read_text()
    listed = page.partition("## The attacks")[2].partition("Timing is measured")[0]
    names = re.findall(r"`([a-z-]+)`", listed)
    assert sorted(names) == sorted(attack.name for attack in all_attacks())


def test_what_the_findings_point_to_exists() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "redteam").rglob("*.py"))
    headings = re.findall(r'where=f"\{THREAT_MODEL\}, ([^"]+)"', sources)
    page = (ROOT / THREAT_MODEL).read_text()
    assert headings
    assert all(re.search(rf"^#+ {re.escape(each)}$", page, re.MULTILINE) for each in headings)
