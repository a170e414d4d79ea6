"""Pages of records and batches, offsets, and search by timestamp, from a verified tail."""
