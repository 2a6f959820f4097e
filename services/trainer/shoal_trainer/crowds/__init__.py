"""Crowd jobs at the trainer: k instances of a model, drawn and replaced (Draw and Discard)."""
