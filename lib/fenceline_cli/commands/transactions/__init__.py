"""``fenceline txn``, and the loop of ``txn run``."""
