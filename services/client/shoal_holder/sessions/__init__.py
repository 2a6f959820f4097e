"""Sessions with Compute nodes: only where the owner's rules allow them."""
