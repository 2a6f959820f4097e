"""`shoal certificate verify`: checks a release certificate without asking anybody."""

from pathlib import Path
from typing import Annotated

import typer

from shoal_command import certificate_views
from shoal_command.connection import read_file
from shoal_command.terminal import AsJson, ExitStatus, fail, output, say_json
from shoal_hosting.manifests.manifest_book import HISTORY
from shoal_hosting.manifests.manifest_chain import history_beside, open_chain
from shoal_protocol.certificates.checks import Verified, verify_certificate
from shoal_protocol.wire.errors import ProtocolError, UnknownManifest

app = typer.Typer(no_args_is_help=True, help="Fetch a job's release certificate, or check one.")


@app.callback()
def _group() -> None:
    """Fetch a job's release certificate, or check one."""


def checked(file: Path, manifest: Path, consortium: Path | None) -> Verified:
    """Check a certificate's file by a manifest's, and by all versions beside it or in a directory.

    Raises:
        RefusedCertificate: it does not hold.
        ValueError: the directory holds no consortium, or another one than the manifest's.
    """
    known = [] if consortium is None else open_chain(consortium)
    history = tuple(history_beside(manifest))
    try:
        return verify_certificate(
            read_file(file), read_file(manifest), known=known, history=history
        )
    except UnknownManifest as error:
        fail(
            f"whether the certificate holds cannot be told yet: {error}. Put the missing versions "
            f"into {manifest.parent / HISTORY}, or give the consortium's directory by --consortium",
            ExitStatus.NOT_YET,
        )


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="The certificate.", metavar="FILE")],
    manifest: Annotated[Path, typer.Option(help="The consortium's signed manifest.json.")],
    consortium: Annotated[
        Path | None,
        typer.Option(help="The consortium's directory: check by its rosters who was left out."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a certificate offline, and say what was released, to whom and at what price.

    The manifest may be any version of it that you trust: the one that the certificate is bound to
    is looked for in the history beside it, and in the consortium's directory. Of that directory
    only versions that link to the manifest count; one of another consortium is refused.

    It asks nobody and needs no party directory. Exit status 1: the certificate does not hold; 6: it
    cannot be told, for a version of the manifest is missing.
    """
    try:
        verified = checked(file, manifest, consortium)
    except ProtocolError as error:
        fail(f"the certificate does not hold. {error}", ExitStatus.MISTAKE)
    if as_json:
        say_json(certificate_views.as_json(verified))
    else:
        output().print(certificate_views.in_words(verified))
