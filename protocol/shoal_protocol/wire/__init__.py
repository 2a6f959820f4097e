"""Encoding, signing and errors of documents, and the phases of rounds and jobs."""
