"""The tests; a package, for other distributions install one of that name."""
