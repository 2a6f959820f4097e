"""The service that a data holder runs around the library: takes part in jobs unattended."""
