"""A service whose clock was ahead when it started, and is set right: what rounds begin under.

Run it over 8128babd: `Handover` there took the time of the start.
"""

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from shoal_kit.manifest_book import Handover, ManifestBook
from shoal_protocol.wire.errors import WrongManifest
from tests.kit.test_manifest_book import SECOND, THIRD, put
from tests.world.examples import CONSORTIUM, OPENED_AT

with TemporaryDirectory() as made:
    directory = Path(made)
    put(directory / "public", CONSORTIUM)
    book = ManifestBook.open(directory / "public", CONSORTIUM.digest, directory / "data")
    for each in (SECOND, THIRD):
        book.accept(each.signed_manifest.encode(), each.roster.encode())
    try:
        handover = Handover(book, OPENED_AT + timedelta(days=1))  # type: ignore[call-arg]
    except TypeError:
        handover = Handover(book)
    for hours in (0, 12, 23):
        now = OPENED_AT + timedelta(hours=hours)
        try:
            version = handover.version(CONSORTIUM.digest, now).manifest.sequence
            print(f"{hours:2} hours after the clock was set right: under version {version} of 3")
        except WrongManifest:
            print(f"{hours:2} hours after the clock was set right: refused")
