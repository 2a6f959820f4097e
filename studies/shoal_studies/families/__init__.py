"""Exponential families by their sufficient statistics: one round each, noise taken into account."""
