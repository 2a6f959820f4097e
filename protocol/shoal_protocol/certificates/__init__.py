"""Release certificates: everything signed of one job, and the check of it offline."""
