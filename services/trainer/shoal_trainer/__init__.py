"""The trainer: asks for private sums and turns them into a posterior."""
