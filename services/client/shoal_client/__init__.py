"""What a data holder and an analyst run: the library, the agent and the command."""
