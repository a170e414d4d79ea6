"""Transactions and the offsets in them, through the log and its coordinator."""
