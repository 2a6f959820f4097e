"""A Compute node: holds one share of each client and publishes only their sum."""
