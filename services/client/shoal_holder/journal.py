"""The vault's private journal: a hash chain of all that it did for good, in its state file.

It has one entry of each kind about each subject, for ever: the `answer` to a round, a `charge` that
was made elsewhere, a `join` and a `leave` of a job, an owner's `decision`, a `contribution` to a
crowd. `spending` reads from it what was spent, and what is reserved. Entries are salted, and no
hash of one leaves the vault. The file's triggers let the table only grow; the chain shows changes
even where the triggers were removed.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any, Final

import nacl.utils
from pyroaring import BitMap

from shoal_holder.state_file import StateFile
from shoal_protocol.journal import (
    EMPTY,
    Chain,
    Link,
    Shown,
    ShownStatement,
    content_hash,
    entry_hash,
)
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.wire.encoding import (
    canonical_json,
    encode_clients,
    format_time,
)
from shoal_protocol.wire.errors import LedgerBroken, MalformedDocument

_SALT_BYTES: Final = 16


def append(file: StateFile, kind: str, subject: str, **body: Any) -> None:
    """Append an entry, in the caller's transaction.

    Raises:
        sqlite3.IntegrityError: there is one of this kind about this subject.
    """
    before = file.head()
    [epoch] = file.one("SELECT epoch || '-' || instance FROM machine")
    link = Link(epoch=epoch, number=before.number + 1, previous=before.hash)
    salt, text = nacl.utils.random(_SALT_BYTES).hex(), canonical_json(body)
    newest = entry_hash(link, content_hash(salt, kind, subject, text))
    row = link.number, epoch, salt, kind, subject, text.decode(), newest
    file.database.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def append_charge(
    file: StateFile,
    kind: str,
    subject: str,
    *,
    job: str,
    cost: Cost,
    slots: BitMap,
    at: datetime,
    **more: Any,
) -> None:
    """Append an entry that charges `cost` to each of `slots`, in the caller's transaction.

    Raises:
        sqlite3.IntegrityError: as `append`.
    """
    charged = {"slots": encode_clients(slots), "mu": cost.mu, "epsilon": cost.stated_epsilon}
    append(file, kind, subject, job=job, at=format_time(at), **charged, **more)


def entries(file: StateFile, *, after: int, count: int) -> list[Shown]:
    """Return up to `count` entries that follow entry `after`, for the owner.

    Raises:
        LedgerBroken: a row is not one that this program wrote.
    """
    [previous] = file.one("SELECT hash FROM journal WHERE number = ?", after) or [EMPTY.hash]
    found = []
    for shown, salt, kind, subject, body in islice(_read(file, after, previous), count):
        document = json.loads(body)
        said = ShownStatement(salt=salt, kind=kind, subject=subject, document=document)
        found.append(shown.model_copy(update={"statement": said}))
    return found


def verify(file: StateFile) -> None:
    """Check the whole journal, to its last byte, and that it has every answer on file.

    Raises:
        LedgerBroken: something was changed, removed or added by hand.
    """
    chain = Chain()
    try:
        for shown, *_ in _read(file, 0, EMPTY.hash):
            chain.follow(shown)
    except MalformedDocument as error:
        raise LedgerBroken(str(error)) from error
    # rows of the outbox stay when what they had is erased
    unpaid = file.one(
        "SELECT 1 FROM outbox WHERE kind = 'envelope'"
        " AND NOT EXISTS (SELECT 1 FROM journal WHERE (kind, subject) = ('answer', about))"
        " UNION ALL SELECT 1 FROM outbox WHERE kind = 'contribution'"
        " AND NOT EXISTS (SELECT 1 FROM journal WHERE (kind, subject) = ('contribution', about))"
        " LIMIT 1"
    )
    if unpaid is not None:
        raise LedgerBroken("what is on file is not what the journal has: the file was changed")


def _read(file: StateFile, after: int, previous: str) -> Iterator[tuple[Shown, str, str, str, str]]:
    """Yield the entries behind one, whose hash is `previous`: salt, kind, subject, body apart."""
    rows = file.database.execute(
        "SELECT number, epoch, hash, salt, kind, subject, body FROM journal"
        " WHERE number > ? ORDER BY number",
        (after,),
    )
    for number, epoch, digest, salt, kind, subject, body in rows:
        try:
            content = content_hash(salt, kind, subject, body.encode())
            shown = Shown(epoch=epoch, number=number, previous=previous, content=content)
        except (ValueError, TypeError, AttributeError):
            shown = None
        if shown is None or shown.hash != digest:
            what = f"journal entry {number} is not one that this program wrote"
            raise LedgerBroken(what)
        yield shown, salt, kind, subject, body
        previous = digest
