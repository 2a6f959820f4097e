"""`shoal party pin`: pins the manifest that a party trusts."""

from pathlib import Path
from typing import Annotated

import typer

from shoal_agent.client_files import write_pin
from shoal_command.terminal import say
from shoal_kit.manifest_chain import open_chain

app = typer.Typer(no_args_is_help=True, help="Make a party of a consortium, and pin its manifest.")


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
