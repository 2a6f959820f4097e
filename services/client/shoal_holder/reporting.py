"""The callback by which the library reports events: a name, and facts that identify no client."""

from typing import Protocol


class Report(Protocol):
    """Called with an event and its facts: digests, counts, codes. Never a client or a value."""

    def __call__(self, event: str, /, **facts: object) -> None: ...


def silent(event: str, /, **facts: object) -> None:
    """Report nothing."""
