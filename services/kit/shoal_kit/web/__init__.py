"""Serves requests over HTTPS: bounded bodies, problem documents, logs and metrics."""
