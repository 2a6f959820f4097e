"""Secret sharing: splitting a vector into shares, sealing them, and adding them up."""
