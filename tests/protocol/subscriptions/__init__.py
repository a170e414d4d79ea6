"""Subscriptions and the offsets of groups, through the log."""
