"""`shoal party pin` and `shoal clients new`: pin a manifest, and make keys of clients."""

import secrets
from pathlib import Path
from typing import Annotated

import typer
from nacl.signing import SigningKey

from shoal_agent.client_files import write_client_keys, write_pin
from shoal_command.terminal import AsJson, say, tell
from shoal_hosting.manifests.manifest_chain import open_chain

app = typer.Typer(no_args_is_help=True, help="Make a party of a consortium, and pin its manifest.")
clients = typer.Typer(no_args_is_help=True, help="Make the keys of clients: one client, one key.")


@app.callback()
def _party() -> None:
    """Make a party of a consortium, and pin its manifest."""


@clients.callback()
def _clients() -> None:
    """Make the keys of clients: one client, one key."""


@app.command()
def pin(
    directory: Annotated[Path, typer.Argument(help="The party's or agent's directory.")],
    digest: Annotated[str, typer.Argument(help="Digest that the parties agreed on.")],
    consortium: Annotated[
        Path | None, typer.Option(help="Check that this consortium directory has that version.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Trust this digest in place of the one pinned.")
    ] = False,
) -> None:
    """Pin the manifest that this party trusts; later versions are then accepted by signature."""
    if consortium is not None:
        open_chain(consortium, pin=digest)
    write_pin(directory, digest, replace_other=replace)
    say(f"{directory} trusts the manifest {digest}.")


@clients.command("new")
def new_clients(
    file: Annotated[Path, typer.Argument(help="New file for the private keys.")],
    count: Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of clients.")],
    as_json: AsJson = False,
) -> None:
    """Make private keys, and FILE.enrolment with the public keys for the consortium's authority.

    Line i of the key file belongs to client i of the records: never reorder either of them.
    """
    keys = [SigningKey(secrets.token_bytes(32)) for _ in range(count)]
    enrolment = write_client_keys(file, keys)
    tell(
        {"keys": file, "enrolment": enrolment, "clients": count},
        as_json,
        f"Made {count:,} clients' private keys in {file}; keep it secret, and keep a copy.",
        f"Hand {enrolment} to the consortium's authority.",
    )
