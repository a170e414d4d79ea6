"""``fenceline produce``, the stop of its reading, and its progress."""
