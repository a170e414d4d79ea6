"""The work that a schedule starts, and no request."""
