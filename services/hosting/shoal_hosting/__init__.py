"""Shared by all service processes: asking other services, serving, storage, manifests, start-up."""
