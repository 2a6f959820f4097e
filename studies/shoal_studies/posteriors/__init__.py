"""Shared classes of posteriors, in the units of the data; each study's module has its own.

Every posterior has `names`, `columns`, `mean`, `sd`, `interval`, `sample`, `records` and
`summary`. Only posteriors by gradients are in normalised units.
"""
