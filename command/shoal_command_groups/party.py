"""`shoal party new` and `rotate`: a party's keys and cards; `backup` and `restore`: its state."""

import secrets
from pathlib import Path
from typing import Annotated, get_args

import typer

from shoal_command.options import VALID_DAYS, ExtraHosts, ValidDays
from shoal_command.terminal import AsJson, now, shell_command, tell
from shoal_consortium.backups import back_up
from shoal_consortium.backups import restore as put_back
from shoal_consortium.party_files import KeyKind, fingerprint, new_party, write_party
from shoal_consortium.party_files import rotate as rotate_keys
from shoal_kit.party import PartyRole

ServiceData = Annotated[
    Path, typer.Option("--data", envvar="SHOAL_DATA", help="The service's data directory.")
]


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
        f"Made {role} {name} in {directory}. Its private keys stay there.",
        f"Hand {card} to the consortium's authority.",
        f"Fingerprint of the card: {fingerprint(party.card)}",
    )


def rotate(
    directory: Annotated[Path, typer.Argument(help="The party's directory.")],
    signing: Annotated[bool, typer.Option("--signing", help="A new signing key.")] = False,
    box: Annotated[bool, typer.Option("--box", help="A new box key (Compute nodes).")] = False,
    tls: Annotated[bool, typer.Option("--tls", help="A new TLS certificate.")] = False,
    url: Annotated[
        str | None, typer.Option(help="The service's new https://host:port, if it moves.")
    ] = None,
    san: ExtraHosts = None,
    valid_days: ValidDays = VALID_DAYS,
    as_json: AsJson = False,
) -> None:
    """Make the next keys of a party beside those in force, and its next card; by default all.

    Nothing is overwritten, and nothing changes until the authority lists the card: then the service
    goes over by itself, without a restart. The old signing key signs the card, so the authority
    need not telephone. Is that key lost, make the party anew by `shoal party new`.
    """
    card, file = rotate_keys(
        directory,
        [
            kind
            for kind, is_meant in zip(get_args(KeyKind), (signing, box, tls), strict=True)
            if is_meant
        ],
        url=url,
        extra_hosts=san or [],
        now=now(),
        valid_days=valid_days,
        random_bytes=secrets.token_bytes,
    )
    tell(
        {"card": file, "fingerprint": fingerprint(card)},
        as_json,
        f"Made the next keys of {card.name} in {directory}; those in force stay.",
        f"Hand {file} to the consortium's authority. It signs and publishes the next version by",
        shell_command(
            *("shoal", "consortium", "change", "CONSORTIUM", "--authority", "AUTHORITY"),
            *("--card", file, "--publish"),
        ),
        f"Fingerprint of the card: {fingerprint(card)}",
    )


def backup(
    data: ServiceData,
    to: Annotated[Path, typer.Option(help="File of the backup; an older one is replaced.")],
    as_json: AsJson = False,
) -> None:
    """Copy the state of a Compute node, aggregator or trainer, which may run, to one private file.

    It has no keys: keep a copy of the party's directory apart. A node's has the shares of open
    rounds: keep it as private as the data directory, and no longer than you need it.
    """
    back_up(data, to)
    tell(
        {"backup": to},
        as_json,
        f"{to} holds the state of the service.",
        "It has no keys: keep a copy of the party's directory apart.",
    )


def restore(
    file: Annotated[Path, typer.Argument(help="What `shoal party backup` wrote.")],
    data: ServiceData,
    as_json: AsJson = False,
) -> None:
    """Put a backup into the data directory of a stopped service whose database is lost.

    Run it as the service's user. An older copy does not pass for the newest: the service then
    refuses to start until its operator accepts, by a token, what is lost.
    """
    put_back(file, data)
    tell(
        {"data": data},
        as_json,
        f"The state of the service is in {data}. Start the service: if the copy is not the newest "
        "state, it refuses, and says what is lost and how to accept that.",
        "Look for a newer copy first. Before you accept a loss, read 'Restore' in "
        "docs/handbook.md.",
    )
