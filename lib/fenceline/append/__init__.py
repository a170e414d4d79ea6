"""Entries committed to a partition: batches and markers are checked, grouped and created.

Begin with ``appender``, whose loop is the path of every append, in one direction:

- ``queue`` has the tickets that wait, the present group, and the turn to lead.
- ``group`` decides what one create would commit, and asks each entry's check. It is pure. ``entries`` has the entries,
  and ``checks`` the rule that refuses a fenced writer.
- ``commit`` creates the segment, which commits the append (I1), and finds out the outcome.
- ``contention`` leaves the log to rivals in turns. ``combining`` has one process create for several.

Not here: what a process knows of a partition; see ``log``.
"""
