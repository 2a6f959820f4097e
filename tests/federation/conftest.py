"""One consortium's keys for all tests here, and played federations that begin with them."""

from tests.world.fixtures import federation, open_trust, quiet, trust

__all__ = ["federation", "open_trust", "quiet", "trust"]
