"""The error by which a learner refuses to give a bad posterior, in words for an analyst."""


class NoReliablePosterior(ValueError):
    """The sums are right, but no posterior that can be relied on follows from them."""
