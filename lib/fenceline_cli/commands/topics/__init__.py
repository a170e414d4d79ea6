"""``fenceline topic``, ``offsets`` and ``trim``."""
