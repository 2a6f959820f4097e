"""Crowds in memory: how k instances of a model behave under draws and discards, by simulation."""
