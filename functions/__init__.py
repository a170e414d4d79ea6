"""What Lambda starts: a module for each function, which names its handler.

Rule: each module imports all that its function's requests need, and opens the stores, before the first request comes.
What ends and admits transactions is imported by ``transactions`` alone. In the other functions only some requests need
it, and all cold starts would take a twentieth longer. There the first such request imports it. Topics in several
regions are another such case: what they need is imported by ``replicator`` alone.
"""

FUNCTIONS = ("produce", "read", "admin", "subscriptions", "sessions", "transactions", "sweeper", "compactor")
# Those that exist only in a region with peers, and all that need the bundle which can ask peers.
WITH_PEERS = ("notifier", "replicator")
ASKING_PEERS = ("admin", *WITH_PEERS)
