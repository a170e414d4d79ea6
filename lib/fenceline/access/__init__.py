"""The right to write to a partition, or to own a resource: sessions, leases, fences, admission (PIP-68).

Start with ``rules``, the table of claims, and ``session_item``, the item of a session. ``claims`` and ``ownership``
decide over one snapshot, and write by one ``item_transaction``. Appends ask ``session_cache``.

Not here: the rule that refuses a fenced writer's append; see ``append.checks``.
"""
