"""Subscriptions: cursors, acknowledgements, backlog, and the offsets of consumer groups.

``cursors`` moves a cursor, ``group_offsets`` those of a group, and ``committed_offsets`` shows them. ``lifecycle``
creates and deletes subscriptions.
``read`` gives the records that are not acknowledged, and ``backlog`` counts them. ``items`` says what is stored,
``cursor_store`` reads and writes it. ``heads`` looks at many partitions at once.

Not here: what time deletes (``sweeper.subscription_expiry``).
"""
