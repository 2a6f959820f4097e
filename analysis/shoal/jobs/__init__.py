"""Jobs as an analyst handles them: submit, watch, withdraw, and take a verified result."""
