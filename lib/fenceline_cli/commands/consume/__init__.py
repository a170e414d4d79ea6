"""``fenceline consume``, and the reading up to an end and through outages."""
