"""Entries committed to a partition: batches and markers, judged, grouped and created.

Rule: the create of a segment is the commit (I1).
"""
