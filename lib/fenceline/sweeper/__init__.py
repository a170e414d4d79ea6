"""The sweeper: deletes objects and expired items, and does all other upkeep that waits for time to pass.

* ``collect`` deletes segments, ``state/`` objects and old compacted views.
* ``deleted_topics`` deletes all that a deleted topic has left.
* ``producer_expiry``, ``session_expiry`` and ``subscription_expiry`` delete items.
* ``retention`` decides where a log start should be.
* ``transaction_meetings`` ends transactions that are due, and reports those that hang.
* ``sweep`` is one run over everything, ``position`` remembers where the next run continues, and ``report`` has the
  counts of a run.

Rule: each step is durable, and harmless to every other process. A run has a budget of time and of deletions.

Not here: the deletions under a budget (``log.deletes``); deletions by requests (``service``,
``subscriptions.lifecycle``).
"""
