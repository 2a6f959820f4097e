"""Regressions in five rounds of everybody, or four to predict, in units that are measured."""
