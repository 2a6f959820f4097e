"""How documents are written, signed and refused, and which phases rounds and jobs go through."""
