"""`shoal model`: digests of the NumPyro models that are installed here, for sides to compare."""

from typing import Annotated

import typer

from shoal_command.terminal import AsJson, tell
from shoal_kit.installed_models import digest_of

app = typer.Typer(no_args_is_help=True, help="Compare the NumPyro models that are installed.")


@app.command()
def digest(
    name: Annotated[str, typer.Argument(help="Name of the entry point.")], as_json: AsJson = False
) -> None:
    """Print the digest of the sources that hold a model; nothing is imported.

    A data holder lists the models that it allows in its policy, as `models = ["NAME@DIGEST"]`.
    """
    found = digest_of(name)
    tell({"model": name, "digest": found}, as_json, found)
