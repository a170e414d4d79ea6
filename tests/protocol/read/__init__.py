"""Pages and offsets, through the log."""
