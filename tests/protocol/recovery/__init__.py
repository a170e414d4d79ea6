"""Verify and rebuild."""
