"""``fenceline bench``: appends, reads and access, measured on the caller's stores.

Not here: what only ``make bench`` runs; see ``benchmarks`` beside ``lib``.
"""
