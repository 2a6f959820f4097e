"""What whoever runs a service sees of it: a console, behind the token in its data directory."""
