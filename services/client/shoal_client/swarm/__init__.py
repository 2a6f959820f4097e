"""Many simulated data holders in one process, to see what a federation bears."""
