"""``fenceline group``."""
