"""Takes part in crowd jobs: finds them, contributes, and checks how each ended."""
