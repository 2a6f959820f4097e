"""The attacks, a module for each kind of lie; a new module with `ATTACKS` is all that one takes."""
