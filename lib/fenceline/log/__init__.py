"""One partition as a process knows it: state, checkpoint, verified tail; and the topics' items.

Not here: what commits an append (``append``), and what deletes objects on schedule (``sweeper``).
"""
