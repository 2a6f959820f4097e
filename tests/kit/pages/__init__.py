"""A page to try a console's frame with."""
