"""Makes the next roster of one: enrols data holders, changes their slots or keys, revokes them."""

from collections.abc import Iterable

from nacl.signing import VerifyKey

from shoal_protocol.trust.roster import KEY_BYTES, MOST_SLOTS, Roster


def roster_of(holders: Iterable[tuple[VerifyKey, int]]) -> Roster:
    """Return the roster of (verify key, number of slots), in this order.

    Raises:
        ValueError: as `with_enrolled`.
    """
    return with_enrolled(Roster(), holders)


def with_enrolled(roster: Roster, holders: Iterable[tuple[VerifyKey, int]]) -> Roster:
    """Return a roster with further (verify key, number of slots), at the next free indices.

    Raises:
        ValueError: a key is on the roster already, or named twice; or a number of slots is not
            positive, or too large.
    """
    keys, ranges = ([part] for part in roster.parts)
    for index, (key, slots) in enumerate(holders, start=roster.holders):
        keys.append(bytes(key))
        ranges.append(_range(index, slots))
    return Roster(b"".join(keys), b"".join(ranges))


def with_grown(roster: Roster, holder: int, slots: int) -> Roster:
    """Return a roster on which a data holder has so many slots more.

    Raises:
        ValueError: there is no such data holder, or the number is not positive or too large.
    """
    keys, ranges = roster.parts
    _check_holder(roster, holder)
    return Roster(keys, ranges + _range(holder, slots))


def with_key(roster: Roster, holder: int, key: VerifyKey) -> Roster:
    """Return a roster on which a data holder has another key, and the slots that it had.

    Raises:
        ValueError: there is no such data holder, it is revoked, or the key is on the roster.
    """
    _check_holder(roster, holder)
    keys, ranges = roster.parts
    place = holder * KEY_BYTES
    if not any(keys[place : place + KEY_BYTES]):
        raise ValueError("the data holder was revoked, which is for good")
    return Roster(keys[:place] + bytes(key) + keys[place + KEY_BYTES :], ranges)


def with_revoked(roster: Roster, holders: Iterable[int]) -> Roster:
    """Return a roster on which data holders, by their indices, are revoked for good.

    Raises:
        ValueError: one of them was never enrolled.
    """
    keys, ranges = bytearray(roster.parts[0]), roster.parts[1]
    for holder in holders:
        _check_holder(roster, holder)
        keys[holder * KEY_BYTES : (holder + 1) * KEY_BYTES] = bytes(KEY_BYTES)
    return Roster(bytes(keys), ranges)


def _check_holder(roster: Roster, holder: int) -> None:
    if not 0 <= holder < roster.holders:
        raise ValueError("there is no such data holder on the roster")


def _range(holder: int, slots: int) -> bytes:
    if not 0 < slots <= MOST_SLOTS:
        raise ValueError("a data holder has at least one slot, and at most 2^32 - 1")
    return holder.to_bytes(4, "little") + slots.to_bytes(4, "little")
