"""Entries committed to a partition: batches and markers are checked, grouped and created.

Rule: the create of a segment commits an append (I1); its line is in ``commit``. At its offset, before the create, each
entry is checked against the log: ``checks`` has the rule that refuses a fenced writer.

Not here: what a process knows of a partition; see ``log``.
"""
