"""Reads and verifies all manifest versions of a consortium directory."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shoal_kit.manifest_book import HISTORY, MANIFEST, history_paths
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.succession import following_version
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import ProtocolError


def open_chain(directory: Path, *, pin: str | None = None) -> list[Consortium]:
    """Open and verify every version, oldest first.

    A version that was not published yet may lack signatures of Compute nodes. With `pin`, one of
    the versions must have that digest. Without it the chain is only known to be whole: whoever
    wrote the directory could have written another.

    Raises:
        ValueError: there is no consortium, a version is missing or broken, or none has the pin.
    """
    chain: list[Consortium] = []
    while (paths := history_paths(directory, len(chain) + 1))[0].exists():
        try:
            manifest, roster = (path.read_bytes() for path in paths)
            if chain:
                chain.append(following_version(chain[-1], manifest, roster, believe=False))
            else:
                digest = decode(manifest, Manifest).digest
                chain.append(Consortium.pinned(manifest, roster, digest=digest))
        except (ProtocolError, OSError) as error:
            raise ValueError(f"{paths[0]}: {error}") from error
    if not chain:
        raise ValueError(f"{directory} holds no consortium")
    if pin is not None and pin not in {version.digest for version in chain}:
        raise ValueError(f"no version in {directory} has the digest that was pinned")
    return chain


def history_beside(manifest: Path) -> Iterator[Signed[Manifest]]:
    """Yield all versions that lie beside a manifest's file, unchecked, as far as they can be read.

    In a consortium's or a party's directory, and in its history, these are all that it has.
    """
    for directory in (manifest.parent, manifest.parent / HISTORY):
        for path in sorted(directory.glob(f"*{MANIFEST}")):
            with suppress(ProtocolError, OSError):
                yield decode(path.read_bytes(), Manifest)
