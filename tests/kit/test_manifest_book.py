"""A party that restarts goes on with the manifest versions that it had accepted."""

from datetime import timedelta
from pathlib import Path

import pytest

from shoal_kit.manifest_book import HANDOVER, Handover, ManifestBook, history_paths
from shoal_kit.startup import StartupRefused, replace
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Consortium
from shoal_protocol.trust.succession import following_version
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.errors import WrongManifest
from tests.world.examples import (
    AUTHORITY,
    CONSORTIUM,
    OPENED_AT,
    REVOKED,
    manifest,
    roster,
)


def next_version(of: Consortium, *revoked: int) -> Consortium:
    """Return a version after `of` in which these clients are revoked."""
    members = roster(revoked=(REVOKED, *revoked))
    sequence = of.manifest.sequence + 1
    body = manifest(of=members, sequence=sequence, previous=of.digest)
    signed = sign(body, AUTHORITY_NAME, AUTHORITY)
    return following_version(of, signed.encode(), members.encode())


def put(directory: Path, *versions: Consortium) -> None:
    for version in versions:
        signed, members = history_paths(directory, version.manifest.sequence)
        replace(signed, version.signed_manifest.encode())
        replace(members, version.roster.encode())


SECOND = next_version(CONSORTIUM, 0)
RIVAL = next_version(CONSORTIUM, 1)
THIRD = next_version(SECOND, 0, 2)


def test_an_accepted_version_that_was_never_published_stays_in_force(tmp_path: Path) -> None:
    put(tmp_path / "public", CONSORTIUM)
    put(tmp_path / "data", SECOND)
    book = ManifestBook.open(tmp_path / "public", CONSORTIUM.digest, tmp_path / "data")
    assert book.current.digest == SECOND.digest


@pytest.mark.parametrize(
    ("accepted", "pinned"), [([SECOND], CONSORTIUM), ([SECOND, THIRD], CONSORTIUM), ([], SECOND)]
)
def test_a_rival_of_an_accepted_version_is_refused_naming_both_files(
    tmp_path: Path, accepted: list[Consortium], pinned: Consortium
) -> None:
    public, data = tmp_path / "public", tmp_path / "data"
    put(public, CONSORTIUM, SECOND if pinned is SECOND else RIVAL)
    put(data, *accepted or [RIVAL])
    published, own = history_paths(public, 2)[0], history_paths(data, 2)[0]
    with pytest.raises(StartupRefused, match="rival versions 2") as refusal:
        ManifestBook.open(public, pinned.digest, data)
    assert str(published) in str(refusal.value)
    assert str(own) in str(refusal.value)


def test_a_round_may_begin_for_a_while_under_the_versions_that_were_replaced_while_one_was_away(
    tmp_path: Path,
) -> None:
    put(tmp_path / "public", CONSORTIUM)
    book, now = (
        ManifestBook.open(tmp_path / "public", CONSORTIUM.digest, tmp_path / "data"),
        OPENED_AT,
    )
    handover = Handover(book)
    for each in (SECOND, THIRD):
        book.accept(each.signed_manifest.encode(), each.roster.encode())
    for each in (CONSORTIUM, SECOND, THIRD):
        assert handover.version(each.digest, now).digest == each.digest
    for each in (CONSORTIUM, SECOND):
        with pytest.raises(WrongManifest):
            handover.version(each.digest, now + HANDOVER)
        with pytest.raises(WrongManifest):
            Handover(book).version(each.digest, now)
    assert handover.version(THIRD.digest, now + HANDOVER).digest == THIRD.digest


def test_a_clock_that_is_set_back_brings_no_version_back_that_was_replaced(tmp_path: Path) -> None:
    put(tmp_path / "public", CONSORTIUM)
    book = ManifestBook.open(tmp_path / "public", CONSORTIUM.digest, tmp_path / "data")
    replaced_here = Handover(book)
    book.accept(SECOND.signed_manifest.encode(), SECOND.roster.encode())
    replaced_before = Handover(book)
    for handover, back in ((replaced_here, HANDOVER), (replaced_before, timedelta(seconds=1))):
        handover.version(SECOND.digest, OPENED_AT)
        with pytest.raises(WrongManifest):
            handover.version(CONSORTIUM.digest, OPENED_AT - back)
