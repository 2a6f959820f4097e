"""Measured privacy: attacks the code that runs, and says what it costs at least."""
