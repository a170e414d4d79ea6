"""``fenceline console``: the console on this machine, in front of services elsewhere, whose requests it signs."""
