"""Whom a consortium trusts: manifests, rosters and the limits that they set."""
