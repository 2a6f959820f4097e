"""`shoal certificate page`: one page of a certificate that a layman can read, print and file."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shoal_agent.console.sentences import chance
from shoal_agent.console.sentences import price as price_in_words
from shoal_command.certificate import certificate_facts, checked, sections
from shoal_command.terminal import ExitStatus, fail, say
from shoal_kit.pages.templates import templates
from shoal_protocol.certificates.checks import Verified
from shoal_protocol.wire.documents import from_json
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError
from shoal_studies.posterior_report import PosteriorReport

_CERTAIN: Final = 0.995  # above it a guess is called certain


def page(
    file: Annotated[Path, typer.Argument(help="The certificate.", metavar="FILE")],
    manifest: Annotated[Path, typer.Option(help="The consortium's signed manifest.json.")],
    out: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE.html")],
    consortium: Annotated[
        Path | None,
        typer.Option(help="The consortium's directory: check by its rosters who was left out."),
    ] = None,
) -> None:
    """Check a certificate offline, and write a page about it: its verdict first, in plain words.

    The page needs no other file and no network. Exit status: as `shoal certificate verify`; of a
    certificate that does not hold the page says so, and where it cannot be told there is none.
    """
    try:
        verified = checked(file, manifest, consortium)
    except ProtocolError as error:
        out.write_text(rendered(None, refused=str(error)))
        fail(f"the certificate does not hold, and {out} says so. {error}", ExitStatus.MISTAKE)
    try:
        out.write_text(rendered(verified))
    except MalformedDocument as error:
        why = f"the certificate holds, and this release cannot read its posterior: {error}"
        fail(why, ExitStatus.NOT_YET)
    say(f"The certificate holds. Its page: {out}")


def rendered(verified: Verified | None, *, refused: str = "") -> str:
    """Return the page, as HTML, of a certificate that holds or that was `refused`."""
    said = None if verified is None else _said(verified)
    return (
        templates("shoal_command_groups")
        .get_template("certificate.html")
        .render(said=said, refused=refused)
    )


def _said(verified: Verified) -> dict[str, Any]:
    said = certificate_facts(verified)
    certificate = verified.certificate
    return {
        **said,
        "model": said["task"]["model"] or said["task"]["name"].replace("_", " "),
        "guesses": [
            {
                "who": each.adversary[0].upper() + each.adversary[1:],
                "sees": each.sees,
                "chance": None if each.promised is None else chance(each.promised),
                "epsilon": None if each.promised is None else f"{each.promised.epsilon:.3g}",
                "delta": f"{certificate.request.body.privacy.delta:g}",
            }
            for each in certificate.statements
        ],
        "certain": _CERTAIN,
        "job_epsilon": f"{certificate.request.body.privacy.epsilon:g}",
        "cap": price_in_words(verified.parties.manifest.policy.cap),
        "operators": sorted(
            {
                (node["name"], node["operator"])
                for each in said["rounds"]
                for node in each["compute_nodes"]
            }
        ),
        "result": from_json(certificate.report.to_json(), PosteriorReport).body.summary(),
        "sections": list(sections(said).items()),
    }
