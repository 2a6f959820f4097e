"""`shoal dictionary`: which variables a consortium has, for its authority and whoever reads it."""

from pathlib import Path
from typing import Annotated, Final

import typer

from shoal_command.terminal import AsJson, say, tell
from shoal_consortium import dictionary_files
from shoal_consortium.party_files import read_signing_key

app = typer.Typer(no_args_is_help=True, help="Agree on variables: the consortium's dictionary.")

EXAMPLE: Final = Path(__file__).with_name("dictionary.toml")


@app.command()
def draft(
    file: Annotated[Path, typer.Argument(help="A CSV file of one data holder.")],
) -> None:
    """Print a dictionary to finish by hand, from the names and types of a file's columns.

    It has no value of the file: bounds and levels come from general knowledge. A file whose first
    line may be a person's values is refused.
    """
    say(dictionary_files.draft(file))


@app.command()
def sign(
    file: Annotated[Path, typer.Argument(help="The dictionary in TOML.", metavar="FILE")],
    consortium: Annotated[Path, typer.Option(help="The consortium directory.")],
    authority: Annotated[Path, typer.Option(help="The authority's private directory.")],
    as_json: AsJson = False,
) -> None:
    """Sign the next version. Variables are added or retired; none changes or goes away."""
    variables = dictionary_files.read_variables(file)
    signed = dictionary_files.add_version(
        consortium, variables, read_signing_key(authority / "signing.key")
    )
    tell(
        {"sequence": signed.body.sequence, "dictionary": signed.digest},
        as_json,
        f"Version {signed.body.sequence} of the dictionary, digest {signed.digest}",
        "Run `shoal consortium publish`, so that the trainer learns of it.",
    )
