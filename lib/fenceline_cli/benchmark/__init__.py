"""``fenceline bench``: appends, reads and access, measured on the stores of its caller."""
