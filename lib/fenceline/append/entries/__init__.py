"""The entries of a partition's queue: the base that they share in ``entry``, and one module for each kind."""
