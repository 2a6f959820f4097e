"""The manifest versions that a party has accepted, kept in files.

A party starts from the version that it pinned and goes on only along the authority's chain. Of the
versions before, each is the one whose digest the next one names.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from shoal_kit.startup import StartupRefused, replace
from shoal_protocol.trust.manifest import Consortium, Manifest, ServiceParty
from shoal_protocol.trust.roster import Roster, key_fingerprint
from shoal_protocol.trust.succession import following_version
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import (
    MalformedDocument,
    ProtocolError,
    TooFewSignatures,
    UnknownManifest,
    WrongManifest,
)

MANIFEST, ROSTER, HISTORY = "manifest.json", "roster.bin", "history"


def history_paths(directory: Path, sequence: int) -> tuple[Path, Path]:
    """Return where version `sequence` of manifest and roster lie below `directory`."""
    return (
        directory / HISTORY / f"{sequence:06d}-{MANIFEST}",
        directory / HISTORY / f"{sequence:06d}-{ROSTER}",
    )


class ManifestBook:
    """All accepted versions, the newest of them in force. Safe to share between threads."""

    def __init__(self, first: Consortium, data_directory: Path) -> None:
        """Begin with the pinned version; `data_directory` keeps those that follow."""
        self.directory = data_directory
        """Where the versions that follow the pinned one are kept."""
        self.published: Path | None = None  # the consortium directory, where it was opened from one
        self._versions = {first.digest: first}
        self.current = first
        """The version in force."""
        self._lock = threading.Lock()

    @classmethod
    def open(cls, consortium_directory: Path, pin: str, data_directory: Path) -> "ManifestBook":
        """Open the pinned version, then every later one on file in either directory.

        Versions that were accepted before, in `data_directory`, take precedence over published
        ones: a rival version could enrol a client again that this party has seen revoked.

        Raises:
            StartupRefused: no version there has the pinned digest, one is broken, two rival
                versions have the same number, or `data_directory` is of another consortium.
        """
        published, kept = map(_manifests_below, (consortium_directory, data_directory))
        pinned = next((each for each in published.values() if _decoded(each).digest == pin), None)
        if pinned is None:
            raise StartupRefused(f"no manifest in {consortium_directory} has the digest in the pin")
        try:
            first = Consortium.pinned(*_content(pinned), digest=pin)
        except (ProtocolError, OSError) as error:
            raise StartupRefused(f"{pinned}: {error}") from error
        for path in kept.values():
            refuse_foreign(data_directory, _decoded(path).body.identity, first)
        book = cls(first, data_directory)
        book.published = consortium_directory
        book._go_back(first, published)
        book._follow(kept, published)
        return book

    def _go_back(self, first: Consortium, published: Mapping[int, Path]) -> None:
        """Take over the versions before the pinned one, as far as they are on file and whole."""
        earlier = [first]
        with suppress(ProtocolError, OSError, KeyError):
            while (previous := earlier[0].manifest.previous) is not None:
                content = _content(published[earlier[0].manifest.sequence - 1])
                earlier.insert(0, Consortium.pinned(*content, digest=previous))
        self._versions = {each.digest: each for each in earlier}

    def _follow(self, *directories: Mapping[int, Path]) -> None:
        """Accept the versions that follow; of two with one number that of the first directory."""
        number = pinned = self.current.manifest.sequence
        while found := [paths[number] for paths in directories if number in paths]:
            if number > pinned:
                try:
                    self.accept(*_content(found[0]))
                except TooFewSignatures:
                    return  # it was made, and not published yet
                except (ProtocolError, OSError) as error:
                    raise StartupRefused(f"{found[0]}: {error}") from error
            if {_decoded(path).digest for path in found} != {self.current.digest}:
                raise StartupRefused(
                    f"{' and '.join(map(str, found))} are rival versions {number} of the manifest; "
                    "ask the consortium's authority which of them holds"
                )
            number += 1

    @property
    def versions(self) -> tuple[Consortium, ...]:
        """Return all accepted versions, oldest first."""
        return tuple(self._versions.values())

    def get(self, digest: str) -> Consortium:
        """Return an accepted version.

        Raises:
            UnknownManifest: it was never accepted here.
        """
        if digest not in self._versions:
            raise UnknownManifest
        return self._versions[digest]

    def version(self, sequence: int) -> Consortium:
        """Return the accepted version of that number.

        Raises:
            UnknownManifest: it was never accepted here.
        """
        digests = {each.manifest.sequence: each.digest for each in self.versions}
        return self.get(digests.get(sequence, ""))

    def roster(self, digest: str) -> Roster:
        """Return the roster of that digest of an accepted version.

        Raises:
            UnknownManifest: no accepted version names it.
        """
        rosters = {each.manifest.roster.digest: each.roster for each in self.versions}
        if digest not in rosters:
            raise UnknownManifest("no accepted version of the manifest names this roster")
        return rosters[digest]

    def known(self, signed_manifest: bytes) -> Consortium | None:
        """Return the accepted version that a signed manifest is of, or None for another one."""
        return self._versions.get(decode(signed_manifest, Manifest).digest)

    def in_force(self, digest: str) -> Consortium:
        """Return the version in force, which must have this digest.

        Raises:
            WrongManifest: another is in force.
        """
        if self.current.digest != digest:
            raise WrongManifest
        return self.current

    def accept(self, signed_manifest: bytes, roster: bytes) -> Consortium:
        """Put the next version in force, durably. A known version changes nothing.

        Raises:
            WrongManifest, MalformedDocument, BadSignature, TooFewSignatures: as
                `following_version`.
            OSError: it could not be stored; it is not in force.
        """
        with self._lock:
            known = self.known(signed_manifest)
            if known is not None:
                return known
            successor = following_version(self.current, signed_manifest, roster)
            for earlier in self._versions.values():
                if successor.roster.takes_again(earlier.roster, since=self.current.roster):
                    raise MalformedDocument("a key is back that was revoked or replaced")
            paths = history_paths(self.directory, successor.manifest.sequence)
            # the roster first: a manifest on file always has its roster
            replace(paths[1], roster)
            replace(paths[0], signed_manifest)
            self._versions[successor.digest] = successor
            self.current = successor
            return successor


def _decoded(manifest: Path) -> Signed[Manifest]:
    """Return the manifest in a file.

    Raises:
        StartupRefused: the file holds none.
    """
    try:
        return decode(manifest.read_bytes(), Manifest)
    except (ProtocolError, OSError) as error:
        raise StartupRefused(f"{manifest} is not a manifest: {error}") from error


def _content(manifest: Path) -> tuple[bytes, bytes]:
    """Return a signed manifest from its file, and its roster from the one beside it."""
    roster = manifest.with_name(manifest.name.replace(MANIFEST, ROSTER))
    return manifest.read_bytes(), roster.read_bytes()


def _manifests_below(directory: Path) -> dict[int, Path]:
    """Return the files of a history's manifests by their numbers, in order."""
    found = sorted(directory.glob(f"{HISTORY}/{'[0-9]' * 6}-{MANIFEST}"))
    return {int(path.name[:6]): path for path in found}


def foreign(where: object, theirs: str, ours: str) -> str | None:
    """Say that state belongs to another consortium, and what to do; None if it is ours.

    Consortia are named by the keys of their first authorities, in hex; `where` is where it lies.
    """
    if theirs == ours:
        return None
    keys = [key_fingerprint(bytes.fromhex(each)) for each in (theirs, ours)]
    return (
        f"{where} holds the state of another consortium: the key of its first authority is "
        f"{keys[0]}, and that of the consortium here is {keys[1]}. Start with the keys and the "
        "consortium that the state belongs to. If nobody needs that state any more, move it away "
        "(`sh examples/compose/trial.sh down` takes a trial in containers away)"
    )


def refuse_foreign(where: object, theirs: str, own: Consortium) -> None:
    """Refuse to start over state of another consortium; see `foreign`.

    Raises:
        StartupRefused: it is one's.
    """
    if (reason := foreign(where, theirs, own.manifest.identity)) is not None:
        raise StartupRefused(reason)


HANDOVER: Final = timedelta(seconds=30)
"""How long after a new version of the manifest a round may still begin under the one before."""


class Handover:
    """Tells under which version of the manifest a round begins.

    A trainer may have signed it before it heard of the version in force.
    """

    def __init__(self, book: ManifestBook) -> None:
        """Begin when no version is new."""
        self._book = book
        self._replaced = {
            each.digest: datetime.min.replace(tzinfo=UTC) for each in book.versions[:-1]
        }

    def version(self, digest: str, now: datetime) -> Consortium:
        """Return the version of that digest: the one in force, or for a while one before.

        How long that is counts from the first call since the version was replaced: who was away
        may find several replaced at once. A clock that is set back makes it no longer.

        Raises:
            WrongManifest: another is in force.
        """
        for each in self._book.versions[:-1]:
            self._replaced.setdefault(each.digest, now)
        if digest in self._replaced and abs(now - self._replaced[digest]) < HANDOVER:
            return self._book.get(digest)
        return self._book.in_force(digest)


def newest_with(book: ManifestBook, name: str) -> Consortium:
    """Return the newest version that lists a party, or the one in force if none does."""
    return next((each for each in reversed(book.versions) if each.lists(name)), book.current)


def at_present(book: ManifestBook, party: ServiceParty) -> ServiceParty:
    """Return a service with its present address and certificate."""
    found = newest_with(book, party.name)
    listed = found.party(party.name) if found.lists(party.name) else party
    return listed if isinstance(listed, ServiceParty) else party
