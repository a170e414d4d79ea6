"""Compaction: one view of a partition, with the newest value of each key."""
