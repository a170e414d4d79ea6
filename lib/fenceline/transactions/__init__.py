"""Transactions: exactly once over several partitions and a group's offsets (KIP-98, KIP-890).

Protocol, "Producers and transactions (Kafka)". There is no resident coordinator. A transaction is one versioned item,
and any process that finds unfinished work can finish it.

Start with ``item``, the stored transaction, and ``decide``, the one table of decisions over it. ``coordinator`` serves
a producer's requests, ``joint_end`` the ends, and ``end_due`` the processes that find a transaction of another
producer. All of them write by ``item_store``, and ``finish`` appends the markers.
"""
