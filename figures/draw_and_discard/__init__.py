"""Draw and Discard by simulation: spread, discards, later noise, and what k costs in accuracy."""
