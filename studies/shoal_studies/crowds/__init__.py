"""Theory and simulation of Draw and Discard: how k instances of a model learn in a crowd."""
