"""The data owner's console: pages on the owner's own machine, which ask the agent."""
