"""What a schedule calls, and no request."""
