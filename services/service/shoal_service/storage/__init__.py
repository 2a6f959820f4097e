"""Databases of the services: schemas, locks, marks of loss, and the hash-chained ledger."""
