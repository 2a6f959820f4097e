"""`shoal party new`: makes keys of a party and its card for the authority."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from shoal_command.options import VALID_DAYS, ExtraHosts, ValidDays
from shoal_command.terminal import AsJson, now, tell
from shoal_consortium.parties import PartyRole, fingerprint, new_party
from shoal_consortium.party_files import write_party


def new(
    directory: Annotated[Path, typer.Argument(help="New directory for the party's files.")],
    role: Annotated[PartyRole, typer.Option(help="What the party does.")],
    name: Annotated[str, typer.Option(help="Name in the manifest: a-z, 0-9 and hyphens.")],
    operator: Annotated[str, typer.Option(help="Organisation that runs the party.")],
    url: Annotated[
        str | None, typer.Option(help="https://host:port of the service; not for an analyst.")
    ] = None,
    san: ExtraHosts = None,
    valid_days: ValidDays = VALID_DAYS,
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
    tell(
        {"card": card, "fingerprint": fingerprint(party.card)},
        as_json,
        f"Made {role.value} {name} in {directory}. Its private keys stay there.",
        f"Hand {card} to the consortium's authority.",
        f"Fingerprint of the card: {fingerprint(party.card)}",
    )
