"""``fenceline produce``, what stops its reading, and what shows its progress."""
