"""Regions: nothing yet. This is the place for replication between regions (DESIGN.md, "Regions")."""
