"""Pages that a party serves to the person who runs it."""
