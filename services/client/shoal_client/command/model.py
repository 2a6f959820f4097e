"""`shoal model`: which NumPyro models are installed here, for two sides to compare; runs none."""

from typing import Annotated

import typer
from rich.table import Table

from shoal_client.command.terminal import AsJson, say, say_json, show
from shoal_hosting.installed_models import digest_of, installed

app = typer.Typer(no_args_is_help=True, help="Compare the NumPyro models that are installed.")


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models installed here, each with the digest of its sources.

    A data holder lists those that it allows in its policy, as `models = ["NAME@DIGEST"]`.
    """
    found = installed()
    if as_json:
        say_json(found)
        return
    if not found:
        say("No models are installed here: they come as entry points of the group shoal.models.")
        return
    table = Table("model", "digest")
    for name, digest in sorted(found.items()):
        table.add_row(name, digest or "none: it is more than Python sources, and cannot be used")
    show(table)


@app.command()
def digest(
    name: Annotated[str, typer.Argument(help="Name of the entry point.")], as_json: AsJson = False
) -> None:
    """Print the digest of the sources that hold a model; nothing is imported."""
    found = digest_of(name)
    if as_json:
        say_json({"model": name, "digest": found})
    else:
        say(found)
