"""Ownership of resources and partitions by a session: own, release, and the guard of a group's reads."""
