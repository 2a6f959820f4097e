"""Draws noise by OpenDP, in a process of its own: it gets public numbers, and sees no record."""
