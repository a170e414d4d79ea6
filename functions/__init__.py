"""What Lambda starts: a handler for each function."""
