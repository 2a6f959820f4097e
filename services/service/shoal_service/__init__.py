"""What every service of an operator is made of: its database, application, and work."""
