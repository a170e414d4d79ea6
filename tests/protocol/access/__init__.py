"""Claims, ownership and groups, through the log."""
