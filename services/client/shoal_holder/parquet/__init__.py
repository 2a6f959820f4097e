"""Reads records from Parquet files, where the owner has such."""
