"""`shoal certificate verify`: checks a release certificate without asking anybody."""

from pathlib import Path
from typing import Annotated

import typer

from shoal_command import certificate_views
from shoal_command.connection import read_file
from shoal_command.terminal import AsJson, ExitStatus, fail, output, say_json
from shoal_hosting.manifests.manifest_chain import open_chain
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.wire.errors import ProtocolError

app = typer.Typer(no_args_is_help=True, help="Fetch a job's release certificate, or check one.")


@app.callback()
def _group() -> None:
    """Fetch a job's release certificate, or check one."""


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

    It asks nobody and needs no party directory. Exit status 1: the certificate does not hold.
    """
    known = [] if consortium is None else open_chain(consortium)
    try:
        verified = verify_certificate(read_file(file), read_file(manifest), known=known)
    except ProtocolError as error:
        fail(f"the certificate does not hold. {error}", ExitStatus.MISTAKE)
    if as_json:
        say_json(certificate_views.as_json(verified))
    else:
        output().print(certificate_views.in_words(verified))
