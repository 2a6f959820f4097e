"""`shoal model`: shows which NumPyro models are installed here, for two sides to compare."""

from typing import Annotated

import typer

from shoal_command.terminal import AsJson, tell
from shoal_hosting.installed_models import digest_of, installed

app = typer.Typer(no_args_is_help=True, help="Compare the NumPyro models that are installed.")


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models installed here, each with the digest of its sources.

    A data holder lists those that it allows in its policy, as `models = ["NAME@DIGEST"]`.
    """
    found = installed()
    no_digest = "none: it is more than Python sources, and cannot be used"
    listed = [{"model": name, "digest": found[name] or no_digest} for name in sorted(found)]
    if found:
        tell(found, as_json, listed)
    else:
        none = "No models are installed here: they come as entry points of the group shoal.models."
        tell(found, as_json, none)


@app.command()
def digest(
    name: Annotated[str, typer.Argument(help="Name of the entry point.")], as_json: AsJson = False
) -> None:
    """Print the digest of the sources that hold a model; nothing is imported."""
    found = digest_of(name)
    tell({"model": name, "digest": found}, as_json, found)
