"""A red team for test federations: named attacks, each judged by what the services answered."""
