"""How the library tells what it does: an event's name and facts without client-linked values."""

from typing import Protocol


class Report(Protocol):
    """Called with an event and its facts: digests, counts, codes. Never a client or a value."""

    def __call__(self, event: str, /, **facts: object) -> None: ...


def silent(event: str, /, **facts: object) -> None:
    """Report nothing."""
