"""``fenceline replication``, and what it shows."""
