"""Rounds: what a trainer asks, what nodes attest, and how both are checked."""
