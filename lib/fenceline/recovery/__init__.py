"""Recovery: verify the log, rebuild the items from the objects, and check what an object store keeps.

``verify`` walks a partition by ``verify_ranges``; ``transaction_findings`` compares open transactions and pending
offsets with the coordinators' items. ``rebuild`` writes all items again, and ``open_transactions`` decides the
transactions that it finds open. ``lost_items`` finds topics that no item names. ``store_check`` races creates against a
store.
"""
