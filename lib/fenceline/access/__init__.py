"""The right to write to a partition, or to own a resource: sessions, leases, fencing, admission (PIP-68)."""
