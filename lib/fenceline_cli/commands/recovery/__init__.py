"""``fenceline verify`` and ``fenceline rebuild``."""
