"""Regressions in at most five rounds of everybody, simulated: what holds, and what errs."""
