"""Takes part in jobs for a data holder: the agent."""
