"""Reads of a partition: pages of records and batches, offsets, segments, and the search by timestamp.

Rule: every answer comes from a verified tail (I4).

Not here: following the log; see ``log``.
"""
