"""Transactions as a program writes them: an instance of a transactional id, its open transaction, its batches."""
