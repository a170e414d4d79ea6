"""``fenceline failover``, and the plan of a move."""
