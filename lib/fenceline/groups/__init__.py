"""Groups: consumers that share out the partitions of topics by themselves (protocol, "Groups").

Rule: there is no resident coordinator. A group is one versioned item, and each member is another one. Each request
decides purely, and makes one conditional write. Any process serves any member.

Not here: the offsets of groups (``subscriptions``); ownership by sessions (``access.ownership``).
"""
