"""Who may write or own: sessions, leases, fencing, and the rules of admission (PIP-68)."""
