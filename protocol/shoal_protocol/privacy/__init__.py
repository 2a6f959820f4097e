"""What a release costs: noise, sensitivity, composition, and the ledgers that record it."""
