"""Coins of hidden participation that fall as they are wanted; it knows no round."""

from shoal_protocol.sharing import RandomBytes


def without_luck(random_bytes: RandomBytes) -> RandomBytes:
    """Return random bytes of which the first, a coin's, say that the client takes no part."""
    is_first = iter((True,))

    def drawn(count: int) -> bytes:
        return b"\xff" * count if next(is_first, False) else random_bytes(count)

    return drawn
