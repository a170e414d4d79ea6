"""``fenceline spark``: each job, and the session that they borrow."""
