"""Values that both sides of HTTP share: records, topics, configurations, results.

Rule: nothing here reads or writes, and a client may load all of it.

Not here: what is stored; see ``format`` and ``log``.
"""
