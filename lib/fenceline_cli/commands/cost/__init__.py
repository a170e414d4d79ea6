"""``fenceline cost``: requests that are counted, and dated prices."""
