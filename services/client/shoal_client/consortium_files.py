"""The consortium directory: every manifest version with its roster; it holds no private key.

`history/000001-manifest.json`, `history/000001-roster.bin`, ... are written once and never change;
`manifest.json` and `roster.bin` repeat the newest version. A version exists from the moment that
its manifest is in the history, which is written after its roster, so a crash loses nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shoal_client.private_files import replace, write_new
from shoal_protocol.documents import Signed, decode
from shoal_protocol.errors import ProtocolError
from shoal_protocol.manifest import Consortium, Manifest
from shoal_protocol.roster import Roster

HISTORY: Final = "history"


def create(directory: Path, manifest: Signed[Manifest], roster: Roster) -> Consortium:
    """Write a consortium directory with version 1.

    Raises:
        FileExistsError: the directory holds a consortium already; nothing is overwritten.
    """
    refuse_existing(directory)
    (directory / HISTORY).mkdir(parents=True)
    first = Consortium.pinned(manifest.encode(), roster.encode(), digest=manifest.digest)
    _store(directory, first)
    return first


def refuse_existing(directory: Path) -> None:
    """Refuse a directory that holds a consortium.

    Raises:
        FileExistsError
    """
    if (directory / "manifest.json").exists() or (directory / HISTORY).exists():
        raise FileExistsError(f"{directory} holds a consortium already; nothing was written")


def add_version(directory: Path, manifest: Signed[Manifest], roster: Roster) -> Consortium:
    """Write the version that follows the newest one.

    Raises:
        ValueError: it does not follow, or somebody else added that version meanwhile.
    """
    with _only_writer(directory):
        current = open_chain(directory)[-1]
        try:
            following = current.successor(manifest.encode(), roster.encode())
        except ProtocolError as error:
            raise ValueError(f"the new version does not follow: {error}") from error
        _store(directory, following)
    return following


def open_chain(directory: Path, *, pin: str | None = None) -> list[Consortium]:
    """Open and verify every version, oldest first.

    With `pin`, one of the versions must have that digest. Without it the chain is only known to
    be whole: whoever wrote the directory could have written another.

    Raises:
        ValueError: there is no consortium, a version is missing or broken, or none has the pin.
    """
    if not (directory / HISTORY).is_dir():
        raise ValueError(f"{directory} holds no consortium")
    chain: list[Consortium] = []
    while (manifest := _history(directory, len(chain) + 1, "manifest.json")).exists():
        encoded = manifest.read_bytes()
        try:
            roster = _history(directory, len(chain) + 1, "roster.bin").read_bytes()
            if chain:
                chain.append(chain[-1].successor(encoded, roster))
            else:
                chain.append(
                    Consortium.pinned(encoded, roster, digest=decode(encoded, Manifest).digest)
                )
        except (ProtocolError, OSError) as error:
            raise ValueError(f"{manifest}: {error}") from error
    if not chain:
        raise ValueError(f"{directory} holds no consortium")
    if pin is not None and pin not in {version.digest for version in chain}:
        raise ValueError(f"no version in {directory} has the digest that was pinned")
    return chain


def repair(directory: Path) -> None:
    """Let `manifest.json` and `roster.bin` repeat the newest version of the history."""
    _repeat(directory, open_chain(directory)[-1])


@contextmanager
def _only_writer(directory: Path) -> Iterator[None]:
    lock = directory / HISTORY / ".writing"
    try:
        write_new(lock, b"", private=False)
    except FileExistsError as error:
        raise ValueError(
            f"another command is adding a version; if none is running, delete {lock}"
        ) from error
    try:
        yield
    finally:
        lock.unlink()


def _store(directory: Path, version: Consortium) -> None:
    number = version.manifest.sequence
    replace(_history(directory, number, "roster.bin"), version.roster.encode())
    encoded = version.signed_manifest.encode()
    write_new(_history(directory, number, "manifest.json"), encoded, private=False)
    _repeat(directory, version)


def _repeat(directory: Path, version: Consortium) -> None:
    replace(directory / "roster.bin", version.roster.encode())
    replace(directory / "manifest.json", version.signed_manifest.encode())


def _history(directory: Path, number: int, name: str) -> Path:
    return directory / HISTORY / f"{number:06d}-{name}"
