"""Gives each individual of the records a slot for ever, by a keyed digest of the personal id.

A slot may tell nothing of who is in it, for files are sorted by all kinds of things: ids that are
new get free slots by chance alone, on disk before they are used. A slot is never given to a second
id; one whose id is gone keeps what was spent on it, and an id that comes back has its slot.
"""

import hmac
from collections.abc import Sequence
from typing import Final

from pyroaring import BitMap

from shoal_holder.records import Identity
from shoal_holder.state_file import StateFile
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.encoding import domain

_KEY_BYTES: Final = 32
_CHANCE_BYTES: Final = 16  # so that of a million slots two come equal with a chance of 2⁻⁸⁹


def slots_by_id(
    file: StateFile, identity: Identity, own: BitMap, random_bytes: RandomBytes
) -> list[tuple[int, bytes]]:
    """Return each id's slot and the digest of it, in the order of `identity.ids`.

    `own` are the data holder's slots. The digest is known to nobody else, as the key in it.

    Raises:
        ValueError: there are more ids, with all that ever were, than slots; or the ids came from
            another column before.
    """
    key = _key(file, identity.column, random_bytes)
    digests = [
        hmac.digest(key, domain("slot-of-id") + each.encode(), "sha256") for each in identity.ids
    ]
    given = dict(file.rows("SELECT individual, slot FROM slots"))
    added = injection(
        [each for each in digests if each not in given],
        list(own - BitMap(given.values())),
        random_bytes,
    )
    if added:
        with file.transaction():
            file.database.executemany(
                "INSERT INTO slots (individual, slot) VALUES (?, ?)", added.items()
            )
    given |= added
    return [(given[each], each) for each in digests]


def injection(
    new: Sequence[bytes], free: Sequence[int], random_bytes: RandomBytes
) -> dict[bytes, int]:
    """Return a slot of `free` for each of `new`, uniformly random among all ways to give them.

    Raises:
        ValueError: there are too few; how many lack is not told, for it may reach others.
    """
    if len(new) > len(free):
        raise ValueError(
            "more individuals than slots: an individual keeps its slot for ever. Ask for more by "
            "`shoal agent grow DIRECTORY --slots N`, where N counts all who ever had a slot and "
            "all who are new"
        )
    if not new:
        return {}
    size = _CHANCE_BYTES
    chance = random_bytes(size * len(free))
    order = sorted(range(len(free)), key=lambda place: chance[size * place : size * (place + 1)])
    return {each: free[place] for each, place in zip(new, order, strict=False)}


def make_sure(file: StateFile) -> None:
    """Note that all slots were given by a state that lacks nothing."""
    if file.one("SELECT 1 FROM slots WHERE NOT is_sure LIMIT 1") is not None:
        file.write("UPDATE slots SET is_sure = 1 WHERE NOT is_sure")


def _key(file: StateFile, column: str, random_bytes: RandomBytes) -> bytes:
    """Return the key of the digests, made at the first import."""
    found = file.one("SELECT key, id_column FROM identity")
    if found is None:
        found = (random_bytes(_KEY_BYTES), column)
        file.write("INSERT INTO identity VALUES (1, ?, ?)", *found)
    key, before = found
    if before != column:
        ways = [f"from the column {each!r}" if each else "from none" for each in (before, column)]
        raise ValueError(
            f"ids came {ways[0]}, now {ways[1]}: everybody would be new, and all spending begin "
            "anew. Keep to the former: name it as the column of ids, in records.toml where that "
            "is, or a view's column. If you cannot, have a new key enrolled"
        )
    return bytes(key)
