"""Subscriptions: cursors, acknowledgements, backlog, and the offsets of consumer groups."""
