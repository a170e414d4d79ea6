"""The sweeper: what it deletes, expires and ends."""
