"""Learners, from private sums to posteriors: pure, for the trainer and for simulations alike."""
