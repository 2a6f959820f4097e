"""Loads a test federation with many simulated clients, and prints what it bore as JSON."""
