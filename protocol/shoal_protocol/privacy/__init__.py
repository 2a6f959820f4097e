"""Prices of releases: noise, sensitivity, composition, and the ledgers that record charges."""
