"""A whole federation on one machine, run in front of the reader."""
