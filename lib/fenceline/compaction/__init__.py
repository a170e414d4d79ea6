"""Compaction: one view of a partition, with the newest value of each key.

``compact`` plans a compaction and puts its view in force. ``copy`` reads and copies the records; ``writer`` makes the
files.

Not here: reading a view (``log.compacted_view``); deleting the files that ``compact.stale_files`` names
(``sweeper.collect``).
"""
