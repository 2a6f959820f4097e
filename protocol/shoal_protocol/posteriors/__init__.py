"""What an analyst gets: posteriors in the units of the data; they know neither sums nor noise.

Every posterior has `names`, `mean`, `sd`, `interval`, `sample`, `predict` and `records`.
"""

from shoal_protocol.posteriors.linear_regression import LinearRegressionPosterior

Posterior = LinearRegressionPosterior
"""Every posterior that a job may end with; more members make this a union discriminated by
`name`."""

__all__ = ["LinearRegressionPosterior", "Posterior"]
