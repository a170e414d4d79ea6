"""The functions that Lambda starts: a module for each, which names its handler.

Rule: each module imports all that its function's requests need, and opens the stores, before the first request comes.
There are two exceptions. The modules that end and admit transactions are imported up front by ``transactions`` alone,
and those of topics in several regions by ``replicator`` alone. In the other functions the first request that needs them
imports them, because only some requests do, and all cold starts would take a twentieth longer.

Rule: a module does so within a ``QuietStart``, because a search for garbage takes a twentieth of a cold start.
"""

FUNCTIONS = ("produce", "read", "admin", "subscriptions", "sessions", "transactions", "sweeper", "compactor")
# Those that exist only in a region with peers, and all that need the bundle which can ask peers.
WITH_PEERS = ("notifier", "replicator")
ASKING_PEERS = ("admin", *WITH_PEERS)
