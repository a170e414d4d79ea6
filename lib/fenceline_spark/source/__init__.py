"""The source: ranges of offsets are planned by the driver, and tasks read their segments."""
