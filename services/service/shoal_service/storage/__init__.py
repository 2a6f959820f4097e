"""Databases of the services: schemas, locks, the journal and the hash-chained ledger."""
