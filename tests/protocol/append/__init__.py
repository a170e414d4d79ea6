"""Appends, admissions and combining, through the log."""
