"""Subscriptions: cursors, acknowledgements, backlog, and the offsets of consumer groups.

``cursors`` moves a cursor, ``group_offsets`` those of a group, and ``committed_offsets`` shows them. ``lifecycle``
creates and deletes subscriptions. ``read`` returns the records that are not acknowledged, and ``backlog`` counts them.
``items`` has the stored forms, which ``cursor_store`` reads and writes. ``heads`` looks at many partitions at once.

Not here: expiry (``sweeper.subscription_expiry``).
"""
