"""Transactions: nothing yet. This is the place for them (DESIGN.md, "Producers and transactions (Kafka)").

A transaction's item, its coordinator, admission of batches, the entries of its markers, and pending offsets belong
here. The markers go through ``append.marker_round``, as those of claims do.
"""
