"""Measurements of the parts that bound how large a federation can be."""
