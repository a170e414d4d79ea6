"""Claims of a producer name (PIP-68): decided on one snapshot, reserved, confirmed once their markers are appended."""
