"""`shoal certificate page`: a page that stands alone, with the verdict first, and echoes safely."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shoal_agent.console.sentences import chance
from shoal_command_groups.certificate_page import rendered
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.privacy.job_costs import PrivacySpent
from shoal_protocol.privacy.mechanisms import gaussian_delta
from tests.command.running import run
from tests.world.certified import TWO_ROUNDS

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Reads a page: its text, its elements, and whether every one of them is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text, self.elements = "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if "style" not in self.open:
            self.text += data


def page_of(directory: Path, encoded: bytes, *, status: int) -> tuple[Page, str]:
    (directory / "certificate.json").write_bytes(encoded)
    (directory / "manifest.json").write_bytes(TWO_ROUNDS.manifest)
    out = directory / "page.html"
    result = run(
        *("certificate", "page", str(directory / "certificate.json")),
        *("--manifest", str(directory / "manifest.json"), "--out", str(out)),
    )
    assert result.exit_code == status, result.output
    page = Page(out.read_text())
    assert page.open == []
    return page, result.output


def test_a_page_asks_nobody_for_anything(tmp_path: Path) -> None:
    page, _ = page_of(tmp_path, TWO_ROUNDS.encode(), status=0)
    elements = {tag for tag, _ in page.elements}
    assert not elements & {"script", "link", "img", "iframe", "form", "object", "embed", "a"}
    assert not [name for _, given in page.elements for name in given if name in ("src", "href")]
    [policy] = [
        given["content"]
        for tag, given in page.elements
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_nothing_that_was_signed_is_taken_for_markup() -> None:
    verified = verify_certificate(TWO_ROUNDS.encode(), TWO_ROUNDS.manifest)
    certificate = verified.certificate
    request = certificate.request.body.model_copy(update={"purpose": "<script>alert(1)</script>"})
    forged = certificate.model_copy(update={"request": replace(certificate.request, body=request)})
    text = rendered(replace(verified, certificate=forged))
    assert "<script>" not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "&lt;b&gt;" in rendered(None, refused="<b>")


@pytest.mark.parametrize("mu", [0.0, 0.1, 0.7, 3.0])
def test_the_chance_of_a_guess_is_that_of_the_best_test_of_two_gaussians(mu: float) -> None:
    """(1 + total variation) / 2, and total variation is delta at epsilon 0."""
    spent = PrivacySpent(epsilon=1.0, delta=1e-5, mu=mu)
    assert chance(spent) == pytest.approx(0.5 + gaussian_delta(epsilon=0.0, mu=mu) / 2)
