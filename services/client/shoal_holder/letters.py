"""What the vault sends, and what became of it.

The courier shows what it was answered, and nobody signs that: see `Vault.settle`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from shoal_holder.messages import Letter
from shoal_kit.outcome import ACKNOWLEDGED, CREATED, NOT_FOUND, OK, code_in, read_json
from shoal_protocol.wire.errors import BadSignature, MalformedDocument

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Draft(NamedTuple):
    """A letter whose body is made when it is handed over; see `Letter`."""

    id: str
    party: str
    path: str
    body: bytes | Callable[[], bytes] = b""
    is_json: bool = True

    def letter(self) -> Letter:
        """Return the letter."""
        body = self.body if isinstance(self.body, bytes) else self.body()
        return Letter(id=self.id, party=self.party, path=self.path, body=body, is_json=self.is_json)


@dataclass(frozen=True)
class Settled:
    """A letter of this `kind`, and the answer to it; `about` and `number` are its id's."""

    kind: str
    about: str
    number: int = 0
    status: int = OK
    body: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, letter: str, status: int, body: bytes) -> "Settled":
        """Return a letter that has this id, with its answer."""
        kind, about, number, *_ = (*letter.split("/"), "", "0")
        return cls(kind, about, int(number or 0), status, body)

    @property
    def code(self) -> str:
        """Return the code of the problem in the answer."""
        return code_in(self.body, self.status)

    @property
    def outcome(self) -> str:
        """Return the outcome of what was sent: acknowledged, or the code of a refusal."""
        return ACKNOWLEDGED if self.status in (OK, CREATED) else self.code

    @property
    def column(self) -> int:
        """Return the column of the table of effects that says what the answer does.

        0: taken, 1: not found, 2: refused otherwise. All else is 3: no answer, a fault of the
        party's (5xx), and a refusal of this holder's signature, which a newer manifest may mend.
        """
        if self.status in (OK, CREATED):
            return 0
        if 400 <= self.status < 500 and self.code != BadSignature.code:
            return 1 if self.status == NOT_FOUND else 2
        return 3


Effect = Callable[[Settled], object]
"""What an answer does; it returns False if it is none to what was asked."""
Effects = tuple[Effect, Effect, Effect, Effect]
"""What answers to one kind of letter do, by `Settled.column`."""


def stays(_: Settled) -> bool:
    """Leave a letter as it is: it is due again."""
    return False


def listed_jobs(answer: bytes, name: str) -> list[str]:
    """Return the ids of the jobs in a trainer's answer, which has a list of them under `name`.

    Raises:
        MalformedDocument: it is not such an answer.
    """
    value = read_json(answer)
    try:
        jobs = [each["job"] for each in value[name]]
    except (KeyError, TypeError):
        raise MalformedDocument("the list of jobs is not one") from None
    if not all(isinstance(job, str) and _DIGEST.fullmatch(job) for job in jobs):
        raise MalformedDocument("a job is named by a digest")
    return jobs
