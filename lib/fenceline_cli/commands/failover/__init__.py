"""``fenceline failover``, and what a move would repeat."""
