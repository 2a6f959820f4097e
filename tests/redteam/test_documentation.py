"""What the findings of the red team point to exists."""

import re
from pathlib import Path

from shoal_redteam.findings import THREAT_MODEL

ROOT = Path(__file__).parents[2]


def test_what_the_findings_point_to_exists() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "redteam").rglob("*.py"))
    headings = re.findall(r'where=f"\{THREAT_MODEL\}, ([^"]+)"', sources)
    page = (ROOT / THREAT_MODEL).read_text()
    assert headings
    assert all(re.search(rf"^#+ {re.escape(each)}$", page, re.MULTILINE) for each in headings)
