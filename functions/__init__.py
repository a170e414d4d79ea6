"""The functions that Lambda starts: a module for each, which names its handler.

Rule: each module imports all that its function's requests need, and opens the stores, before the first request comes.
Two exceptions are imported by the first request that needs them, because only some requests do, and the cold starts of
all functions would take a twentieth longer: the modules that end and admit transactions, which only ``transactions``
imports up front, and those of topics in several regions, which only ``replicator`` does.
"""

FUNCTIONS = ("produce", "read", "admin", "subscriptions", "sessions", "transactions", "sweeper", "compactor")
# Those that exist only in a region with peers, and all that need the bundle which can ask peers.
WITH_PEERS = ("notifier", "replicator")
ASKING_PEERS = ("admin", *WITH_PEERS)
