"""Groups of the `shoal` command for analysts, auditors and a consortium's authority."""
