"""What Lambda starts: a module for each function, which names its handler.

Rule: each module imports all that its function's requests need, and opens the stores, before the first request comes.
"""

FUNCTIONS = ("produce", "read", "admin", "subscriptions", "sessions", "transactions", "sweeper", "compactor")
