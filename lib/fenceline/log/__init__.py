"""One partition as a process knows it: state, checkpoint, verified tail; and the topics' items.

Rule: the log is the truth, and items are its index.

Not here: what commits an append (``append``), and what deletes objects on schedule (``sweeper``).
"""
