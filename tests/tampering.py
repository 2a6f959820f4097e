"""Bytes that changed on the way: never, by chance, into what they were."""


def flipped(content: bytes, position: int, flip: int = 1) -> bytes:
    """Return `content` with the bits `flip` (1 to 255) of the byte at `position` flipped."""
    changed = bytearray(content)
    changed[position] ^= flip
    return bytes(changed)
