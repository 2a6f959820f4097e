"""The consortium directory: every manifest version with its roster.

`history/000001-manifest.json`, `history/000001-roster.bin`, ... are written once and never change,
but for the Compute nodes' signatures that a manifest gets when it is published; without them an
emergency can take its place. `manifest.json` and `roster.bin`
repeat the newest version. A version exists from the moment that its manifest is in the history,
which is written after its roster, so a crash loses nothing.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from shoal_kit.manifest_book import HISTORY, history_paths
from shoal_kit.manifest_chain import open_chain
from shoal_kit.private_files import locked, write_new
from shoal_kit.startup import replace
from shoal_protocol.certificates.checks import LinkedVersions
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.roster import Roster
from shoal_protocol.trust.succession import following_version
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import ProtocolError


def create(directory: Path, manifest: Signed[Manifest], roster: Roster) -> Consortium:
    """Write a consortium directory with version 1.

    Raises:
        FileExistsError: the directory holds a consortium already; nothing is overwritten.
    """
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
    """Write the version that follows the newest one; an emergency takes back what nobody believes.

    Raises:
        ValueError: it does not follow, or somebody else added that version meanwhile.
    """
    lock = directory / HISTORY / ".writing"
    with locked(lock, "another command is adding a version: wait until it has ended"):
        chain = open_chain(directory)
        kept = chain if manifest.body.emergency is None else believed(chain)
        current = kept[-1]
        try:
            following = following_version(
                current, manifest.encode(), roster.encode(), believe=False
            )
        except ProtocolError as error:
            raise ValueError(f"the new version does not follow: {error}") from error
        for version in reversed(chain[len(kept) :]):  # the newest first: what is left is whole
            history_paths(directory, version.manifest.sequence)[0].unlink()
        _store(directory, following)
    return following


def believed(chain: Sequence[Consortium], *, pin: str | None = None) -> list[Consortium]:
    """Return what leads to the pinned version, or to the first, and the believed ones after it.

    The authority's signature is not enough for a later version to be believed.
    """
    signed = {each.digest: each.signed_manifest for each in chain}
    linked = LinkedVersions(signed[pin or chain[0].digest], signed.values())
    return [each for each in chain if each.digest in linked.by_digest]


def add_countersignatures(
    directory: Path, version: Consortium, countersignatures: str
) -> Consortium:
    """Write what Compute nodes signed of a version beside the version; return it with that."""
    signed = dataclasses.replace(version.signed_manifest, countersignatures=countersignatures)
    replace(history_paths(directory, version.manifest.sequence)[0], signed.encode())
    repair(directory)
    return dataclasses.replace(version, signed_manifest=signed)


def repair(directory: Path) -> None:
    """Let `manifest.json` and `roster.bin` repeat the newest version of the history."""
    _repeat(directory, open_chain(directory)[-1])


def _store(directory: Path, version: Consortium) -> None:
    manifest, roster = history_paths(directory, version.manifest.sequence)
    replace(roster, version.roster.encode())
    write_new(manifest, version.signed_manifest.encode(), private=False)
    _repeat(directory, version)


def _repeat(directory: Path, version: Consortium) -> None:
    replace(directory / "roster.bin", version.roster.encode())
    replace(directory / "manifest.json", version.signed_manifest.encode())
