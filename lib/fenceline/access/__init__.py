"""The right to write to a partition, or to own a resource: sessions, leases, fences, admission (PIP-68).

Not here: the rule that refuses a fenced writer's append; see ``append.checks``.
"""
