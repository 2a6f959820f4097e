"""Asks other services over HTTPS: bounded connections, answers and retries."""
