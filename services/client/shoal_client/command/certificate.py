"""`shoal certificate`: fetches release certificates, and checks them without asking anybody."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from shoal_client.command import certificate_views
from shoal_client.command.connection import (
    ConsortiumDirectory,
    JobId,
    PartyDirectory,
    checked_id,
    open_analyst,
    open_book,
)
from shoal_client.command.inputs import read_file
from shoal_client.command.terminal import AsJson, ExitStatus, asking, fail, output, say, say_json
from shoal_client.consortium_files import open_chain
from shoal_client.private_files import write_new
from shoal_hosting.manifest_book import history_paths
from shoal_protocol.certificate_checks import verify_certificate
from shoal_protocol.certificates import ReleaseCertificate
from shoal_protocol.documents import decode
from shoal_protocol.errors import ProtocolError

app = typer.Typer(no_args_is_help=True, help="Fetch a job's release certificate, or check one.")


@app.command()
def fetch(
    job: JobId,
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    out: Annotated[Path, typer.Option(help="New file for the certificate; - prints it.")],
) -> None:
    """Get a finished job's release certificate from the trainer, and check it.

    A crowd job has none: see `shoal crowd verify`.

    Exit status: 0 written and checked; 1 the file exists, or a directory cannot be read; 2 wrong
    usage; 3 the trainer refused, or what it sent does not hold; 4 it could not be reached; 5 the
    job ended without a posterior; 6 the job is not finished yet.
    """
    with asking("the trainer"):
        encoded = open_analyst(party, consortium).job(checked_id(job)).certificate()
    if encoded is None:
        fail("the job is not finished; see `shoal job watch`", ExitStatus.NOT_YET)
    if str(out) == "-":
        typer.echo(encoded, nl=False)
        return
    write_new(out, encoded, private=False)
    version = open_book(party, consortium).get(decode(encoded, ReleaseCertificate).body.manifest)
    manifest, _ = history_paths(consortium, version.manifest.sequence)
    again = shlex.join(["verify", str(out), "--manifest", str(manifest)])
    say(f"Written and checked: {out}. Anyone can check it again: shoal certificate {again}")


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
    encoded, signed_manifest = read_file(file), read_file(manifest)
    try:
        known = [] if consortium is None else open_chain(consortium)
    except ValueError as error:
        fail(str(error), ExitStatus.MISTAKE)
    try:
        verified = verify_certificate(encoded, signed_manifest, known=known)
    except ProtocolError as error:
        fail(f"the certificate does not hold. {error}", ExitStatus.MISTAKE)
    if as_json:
        say_json(certificate_views.as_json(verified))
    else:
        output().print(certificate_views.in_words(verified))
