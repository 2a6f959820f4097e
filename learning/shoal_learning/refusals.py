"""What a learner says, in words fit for an analyst, instead of giving a bad answer."""


class NoReliablePosterior(ValueError):
    """The sums are those that were asked for, but no posterior could be computed that holds."""
