"""The aggregator: adds the partial sums of the Compute nodes and serves the signed result."""
