"""The consortium's root of trust: manifests, rosters and the limits that they set."""
