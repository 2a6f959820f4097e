"""What every program of Shoal is made of: keys, settings, manifests, asking and serving others."""
