"""Databases of the services: schemas, locks, and the journal with its charges."""
