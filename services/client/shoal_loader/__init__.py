"""The loader: a process without keys that maps a data holder's raw data to records by id."""
