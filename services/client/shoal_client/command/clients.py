"""`shoal clients`: makes clients' keys for a data holder; it enrols nobody."""

import secrets
from pathlib import Path
from typing import Annotated

import typer
from nacl.signing import SigningKey

from shoal_client.command.terminal import AsJson, say, say_json
from shoal_client.party_files import write_client_keys

app = typer.Typer(no_args_is_help=True, help="Make the keys of clients: one client, one key.")


@app.command()
def new(
    file: Annotated[Path, typer.Argument(help="New file for the private keys.")],
    count: Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of clients.")],
    as_json: AsJson = False,
) -> None:
    """Make private keys, and FILE.enrolment with the public keys for the consortium's authority.

    Line i of the key file belongs to client i of the records: never reorder either of them.
    """
    keys = [SigningKey(secrets.token_bytes(32)) for _ in range(count)]
    enrolment = write_client_keys(file, keys)
    if as_json:
        say_json({"keys": str(file), "enrolment": str(enrolment), "clients": count})
        return
    say(f"Made {count:,} clients' private keys in {file}; keep it secret, and keep a copy.")
    say(f"Hand {enrolment} to the consortium's authority.")
