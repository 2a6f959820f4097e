"""Options for the party directory and the consortium, connections by them, and bounded reading."""

import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Final

import typer

from shoal_holder.keys import read_private
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.party import TLS_CERTIFICATE, load_party
from shoal_kit.peers.service_calls import Endpoint
from shoal_kit.startup import read_pin

PartyDirectory = Annotated[
    Path, typer.Option("--party", envvar="SHOAL_PARTY", help="Your party directory.")
]
ConsortiumDirectory = Annotated[
    Path, typer.Option("--consortium", envvar="SHOAL_CONSORTIUM", help="The consortium directory.")
]
AgentDirectory = Annotated[
    Path, typer.Option("--agent", help="The agent's directory, with its tls.crt.")
]
AgentData = Annotated[
    Path, typer.Option("--data", help="The agent's data directory, with owner.token.")
]
ServiceData = Annotated[
    Path, typer.Option("--data", help="The service's data directory, with operator.token.")
]
AgentUrl = Annotated[str, typer.Option("--url", help="https://host:port of the agent.")]
JobId = Annotated[str, typer.Argument(help="The job's id.", metavar="JOB")]

LARGEST_FILE: Final = 256 << 20  # bytes
"""Above what any certificate or ledger has: a certificate of 100,000 numbers takes some 10 MB."""


def open_book(party: Path, consortium: Path) -> ManifestBook:
    """Return the manifest versions that the party trusts."""
    return ManifestBook.open(consortium, read_pin(party), party)


def own_service(directory: Path, data: Path) -> Endpoint:
    """Return the caller's service, of any role, to whom requests carry the token in `data`."""
    card = load_party(directory).card
    if card.url is None:
        raise ValueError(f"{directory} is the directory of an analyst, who runs no service")
    return _own(directory, card.url, data / "operator.token")


def own_agent(directory: Path, url: str, data: Path) -> Endpoint:
    """Return the caller's agent; requests carry the owner's token from its `data`."""
    return _own(directory, url, data / "owner.token")


def _own(directory: Path, url: str, token: Path) -> Endpoint:
    return Endpoint(
        url,
        (directory / TLS_CERTIFICATE).read_text(encoding="ascii"),
        read_private(token).decode("ascii").strip(),
    )


def checked_id(digest: str, *, of: str = "job", listed_by: str = "shoal job list") -> str:
    """Return the id of a job or round; `listed_by` is the command that shows such ids.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError(f"a {of}'s id is 64 hexadecimal digits; see `{listed_by}`")
    return digest


def read_file(path: Path) -> bytes:
    """Return the content of a file that may be a device or a pipe without an end.

    Raises:
        ValueError: it has more than `LARGEST_FILE` bytes.
        OSError: it cannot be read.
    """
    name = "what was piped in" if str(path) == "-" else str(path)
    with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"{name} has more than {LARGEST_FILE >> 20} MiB: it was not read")
    return content
