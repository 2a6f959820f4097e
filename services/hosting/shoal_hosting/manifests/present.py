"""Where a party is at present: as the newest version of the manifest that lists it says."""

from datetime import timedelta
from typing import Final

from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_protocol.trust.manifest import Consortium, ServiceParty

HANDOVER: Final = timedelta(seconds=30)
"""How long after a new version of the manifest a round may still begin under the one before."""


def newest_with(book: ManifestBook, name: str) -> Consortium:
    """Return the newest version that lists a party, or the one in force if none does."""
    for version in reversed(book.versions):
        if version.lists(name):
            return version
    return book.current


def at_present(book: ManifestBook, party: ServiceParty) -> ServiceParty:
    """Return a service with its present address and certificate."""
    found = newest_with(book, party.name)
    listed = found.party(party.name) if found.lists(party.name) else party
    return listed if isinstance(listed, ServiceParty) else party
