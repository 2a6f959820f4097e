"""Shared classes of posteriors, in the units of the data; each study's module has its own.

Every posterior has `names`, `columns`, `mean`, `sd`, `interval`, `sample`, `predict`, `records`,
`to_arviz` and `summary`.
"""
