"""The stored bytes: batches, segments, markers, keys.

Rule: stored numbers and layouts never change; a new one is added beside the old one.

Not here: the meaning of stored bytes for a partition's state; see ``log.state``.
"""
