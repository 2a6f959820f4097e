"""Models of one patient's record, for jobs over many."""
