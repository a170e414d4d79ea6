"""Transactions: exactly once over several partitions and a group's offsets (KIP-98, KIP-890).

DESIGN.md, "Producers and transactions (Kafka)". There is no resident coordinator. A transaction is one versioned item,
and any process that meets unfinished work can finish it.
"""
