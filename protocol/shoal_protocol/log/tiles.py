"""The Merkle tree as static files (C2SP tlog-tiles), proofs made from them, and checks of proofs.

A tile holds up to 256 consecutive hashes of one level; those of level L are the roots of full
subtrees of 256**L entries. Entries lie in bundles of 256, each behind its length in 2 bytes.
Hashes: RFC 6962, section 2.1. Checks: RFC 9162, sections 2.1.3.2 and 2.1.4.2. A hash has 32 bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final

from shoal_protocol.trust.succession import WrongProof as WrongProof
from shoal_protocol.trust.succession import check_inclusion as check_inclusion
from shoal_protocol.wire.errors import MalformedDocument

EMPTY_ROOT: Final = sha256().digest()
HASH_BYTES: Final = 32
MOST_HASHES: Final = 63  # in a proof (tlog-witness)


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees."""
    return sha256(b"\x01" + left + right).digest()


def check_consistency(
    old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Check that the tree of the first `old` entries of the `new` ones has the root `old_root`.

    Raises:
        WrongProof
    """
    if not 0 <= old <= new:
        raise WrongProof("the log has become shorter")
    if old in (0, new):
        if proof:
            raise WrongProof("no proof is needed from the empty tree, or if the size is the same")
        if old_root != (EMPTY_ROOT if old == 0 else new_root):
            raise WrongProof("one size, other roots")
        if new == 0 and new_root != EMPTY_ROOT:
            raise WrongProof("the empty tree has another root")
        return
    hashes = [*([old_root] if old & (old - 1) == 0 else []), *proof]
    if not hashes:
        raise WrongProof("the proof of consistency is empty")
    here, last = old - 1, new - 1
    while here % 2:
        here, last = here >> 1, last >> 1
    before = after = hashes[0]
    for each in hashes[1:]:
        if last == 0:
            raise WrongProof("the proof of consistency is too long")
        if here % 2 or here == last:
            before, after = node_hash(each, before), node_hash(each, after)
            while not here % 2 and here:
                here, last = here >> 1, last >> 1
        else:
            after = node_hash(after, each)
        here, last = here >> 1, last >> 1
    if last or before != old_root or after != new_root:
        raise WrongProof("the older tree is not the beginning of the newer one")


WIDTH: Final = 256
_HEIGHT: Final = 8
_LEVELS: Final = 64
_LONGEST_PATH: Final = 64
ENTRIES: Final = "entries"  # stands for a level in a bundle's path

ReadTile = Callable[[int, int, int], bytes]
"""Returns the tile of a level, an index and a width: so many hashes, one after the other."""


def tile_path(level: int | str, index: int, width: int = WIDTH) -> str:
    """Return where a tile, or the bundle of `ENTRIES`, lies below the log's prefix."""
    digits = f"{index:d}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    parts = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    path = "/".join([*(f"x{part}" for part in parts[:-1]), parts[-1]])
    return f"tile/{level}/{path}" + ("" if width == WIDTH else f".p/{width}")


def tile_at(path: str) -> tuple[int | str, int, int]:
    """Return the level, index and width of a path below the log's prefix.

    Raises:
        MalformedDocument: no tile has this path.
    """
    where, partial, width = path[:_LONGEST_PATH].partition(".p/")
    try:
        prefix, level, *parts = where.split("/")
        found = (
            level if level == ENTRIES else int(level),
            int("".join([part.removeprefix("x") for part in parts])),
            int(width) if partial else WIDTH,
        )
        is_level = level == ENTRIES or 0 <= int(level) < _LEVELS
        if prefix == "tile" and is_level and tile_path(*found) == path and 0 < found[2] <= WIDTH:
            return found
    except ValueError:  # not a number, or no level
        pass  # refused below, as other wrong paths are
    raise MalformedDocument("the log has no such path")


def widths(size: int) -> list[tuple[int, int, int]]:
    """Return level, index and width of every tile of a tree of `size` entries."""
    found = []
    level = 0
    while size >> (_HEIGHT * level):
        full, rest = divmod(size >> (_HEIGHT * level), WIDTH)
        found += [(level, index, WIDTH) for index in range(full)]
        found += [(level, full, rest)] if rest else []
        level += 1
    return found


def bundles(start: int, size: int) -> list[tuple[int, int]]:
    """Return index and width of the bundles that hold the entries from `start` up to `size`."""
    return [
        (index, min(WIDTH, size - index * WIDTH))
        for index in range(start // WIDTH, -(-size // WIDTH))
    ]


def encode_bundle(entries: Iterable[bytes]) -> bytes:
    """Return entries, each behind its length in 2 bytes, big-endian."""
    return b"".join(len(each).to_bytes(2, "big") + each for each in entries)


def decode_bundle(encoded: bytes) -> list[bytes]:
    """Return the entries of a bundle.

    Raises:
        MalformedDocument
    """
    entries, at = [], 0
    while at < len(encoded):
        end = at + 2 + int.from_bytes(encoded[at : at + 2], "big")
        if end > len(encoded):
            raise MalformedDocument("a bundle of entries is cut off")
        entries.append(encoded[at + 2 : end])
        at = end
    return entries


class Tree:
    """A tree of `size` entries that is read by tiles. Tiles are kept: read a tree and let it go."""

    def __init__(self, size: int, read: ReadTile) -> None:
        """Read nothing yet."""
        self.size = size
        self.read = read
        self._tiles: dict[tuple[int, int, int], bytes] = {}

    def root(self, size: int | None = None) -> bytes:
        """Return the root of the first `size` entries, at most all of them."""
        size = self.size if size is None else self._within(size)
        return self._hash(0, size) if size else EMPTY_ROOT

    def inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """Return the proof that the first `size` entries have the one at `index` (RFC 6962, 2.1.1).

        Raises:
            ValueError: they do not reach so far.
        """
        size = self.size if size is None else self._within(size)
        if not 0 <= index < size:
            raise ValueError("the entry lies outside the tree")
        proof: list[bytes] = []
        start, end = 0, size
        while end - start > 1:
            middle = start + _split(end - start)
            if index < middle:
                proof.append(self._hash(middle, end))
                end = middle
            else:
                proof.append(self._hash(start, middle))
                start = middle
        return proof[::-1]

    def consistency(self, old: int, new: int | None = None) -> list[bytes]:
        """Return the proof that the first `old` entries begin the first `new` (RFC 6962, 2.1.2).

        Raises:
            ValueError: there are not as many.
        """
        new = self.size if new is None else self._within(new)
        if not 0 <= old <= new:
            raise ValueError("the older tree is larger")
        if old in (0, new):
            return []
        proof: list[bytes] = []
        start, end = 0, new
        while old != end:
            middle = start + _split(end - start)
            if old <= middle:
                proof.append(self._hash(middle, end))
                end = middle
            else:
                proof.append(self._hash(start, middle))
                start = middle
        if start:  # else the verifier has this one: it is the older tree's root
            proof.append(self._hash(start, end))
        return proof[::-1]

    def _within(self, size: int) -> int:
        if not 0 <= size <= self.size:
            raise ValueError("the tree is smaller")
        return size

    def _hash(self, start: int, end: int) -> bytes:
        """Return the hash of the entries from `start` to `end`, whose subtree is in some tree."""
        count = end - start
        if count & (count - 1) == 0 and start % count == 0:
            return self._full(count.bit_length() - 1, start // count)
        middle = start + _split(count)
        return node_hash(self._hash(start, middle), self._hash(middle, end))

    def _full(self, height: int, index: int) -> bytes:
        """Return the root of the full subtree of 2**height entries at `index`."""
        level, above = divmod(height, _HEIGHT)
        first, count = index << above, 1 << above
        tile, place = divmod(first, WIDTH)
        width = min(WIDTH, (self.size >> (_HEIGHT * level)) - tile * WIDTH)
        key = (level, tile, width)
        if key not in self._tiles:
            self._tiles[key] = self.read(*key)
            if len(self._tiles[key]) != width * HASH_BYTES:
                raise MalformedDocument("a tile of the log has another length")
        hashes = self._tiles[key][place * HASH_BYTES : (place + count) * HASH_BYTES]
        return root_of([hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)])


def root_of(hashes: Sequence[bytes]) -> bytes:
    """Return the root over 2**n hashes."""
    while len(hashes) > 1:
        hashes = [node_hash(*hashes[at : at + 2]) for at in range(0, len(hashes), 2)]
    return hashes[0]


def _split(count: int) -> int:
    """Return the largest power of two below `count`."""
    return 1 << ((count - 1).bit_length() - 1)
