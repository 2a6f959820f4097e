"""Sets up a consortium: keys, manifests, rosters, and checks of how it is deployed."""
