"""Crowd jobs (Draw and Discard) as data holders and analysts see them: no rounds, no shares."""
