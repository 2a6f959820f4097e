"""Formulas in Wilkinson's notation, and the columns that they mean by the data dictionary."""
