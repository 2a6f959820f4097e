"""Manifest versions and their rosters as a service keeps, takes and serves them."""
