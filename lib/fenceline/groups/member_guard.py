"""The guard of a member's reads and commits: only the member that holds the partition passes (protocol, "Groups").

Rule: a commit carries the member's item as a condition of its write, so that a removed member's commit never lands, and
no commit contends for the group's item. Without a member a commit passes only while the group has none, and carries the
group's item as its condition.

Not here: ownership by sessions, which stands above (``access.ownership.read_guard``).
"""
