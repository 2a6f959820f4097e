"""Takes part in jobs for a data holder: the agent, and `data_holder` for programs of one's own."""
