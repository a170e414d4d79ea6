"""Log lines, metrics and traces of the functions."""
