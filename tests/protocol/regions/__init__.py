"""Several regions: what is pulled, marked, moved and shown."""
