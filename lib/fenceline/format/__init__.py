"""What is stored, byte for byte: batches, segments, markers, keys.

Rule: stored numbers and layouts never change; a new one is added beside the old one.

Not here: what stored bytes mean for a partition's state; see ``log.state``.
"""
