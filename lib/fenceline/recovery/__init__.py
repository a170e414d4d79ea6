"""Recovery: verify the log, rebuild the items from the objects, and check what an object store keeps.

``verify`` walks a partition by ``verify_ranges``; ``transaction_findings`` holds what is open and pending against the
coordinators' items. ``rebuild`` writes all items anew, and ``open_transactions`` decides what it finds open.
``lost_items`` finds topics that no item names. ``store_check`` races creates against a store.
"""
