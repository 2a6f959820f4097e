"""The analyst's console: pages on her own machine, which sign with her key."""
