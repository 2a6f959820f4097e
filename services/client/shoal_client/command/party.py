"""`shoal party`: makes a party's keys and pins manifests; it talks to nobody."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from shoal_client import consortium_files
from shoal_client.command.terminal import AsJson, now, say, say_json
from shoal_client.parties import PartyRole, fingerprint, new_party
from shoal_client.party_files import write_party, write_pin

app = typer.Typer(no_args_is_help=True, help="Make a party of a consortium, and pin its manifest.")

VALID_DAYS = 1826  # five years


@app.command()
def new(
    directory: Annotated[Path, typer.Argument(help="New directory for the party's files.")],
    role: Annotated[PartyRole, typer.Option(help="What the party does.")],
    name: Annotated[str, typer.Option(help="Name in the manifest: a-z, 0-9 and hyphens.")],
    operator: Annotated[str, typer.Option(help="Organisation that runs the party.")],
    url: Annotated[
        str | None, typer.Option(help="https://host:port of the service; not for an analyst.")
    ] = None,
    san: Annotated[
        list[str] | None,
        typer.Option(help="Further host name or IP address for the certificate; repeatable."),
    ] = None,
    valid_days: Annotated[
        int, typer.Option(min=1, max=36525, help="Days that the certificate is valid.")
    ] = VALID_DAYS,
    as_json: AsJson = False,
) -> None:
    """Make private keys, a TLS certificate and the card to hand to the consortium's authority.

    Nothing is ever overwritten. Only card.json leaves the directory; read the fingerprint to the
    authority over another channel, so that it knows the card is yours.
    """
    party = new_party(
        role,
        name=name,
        operator=operator,
        url=url,
        extra_hosts=san or [],
        now=now(),
        valid_days=valid_days,
        random_bytes=secrets.token_bytes,
    )
    write_party(directory, party)
    card = directory / "card.json"
    if as_json:
        say_json({"card": str(card), "fingerprint": fingerprint(party.card)})
        return
    say(f"Made {role.value} {name} in {directory}. Its private keys stay there.")
    say(f"Hand {card} to the consortium's authority.")
    say(f"Fingerprint of the card: {fingerprint(party.card)}")


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
        consortium_files.open_chain(consortium, pin=digest)
    write_pin(directory, digest, replace_other=replace)
    say(f"{directory} trusts the manifest {digest}.")
