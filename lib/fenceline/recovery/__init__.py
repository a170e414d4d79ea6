"""Recovery: verify the log, rebuild the items from the objects, and check what an object store keeps.

``verify`` walks a partition by ``verify_ranges``. ``rebuild`` writes all items anew; ``lost_items`` finds topics that
no item names. ``store_check`` races creates against a store.
"""
