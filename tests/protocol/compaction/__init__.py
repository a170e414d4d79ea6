"""Compacted views, and tables in several regions."""
