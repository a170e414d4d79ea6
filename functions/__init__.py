"""What Lambda calls, and what `fenceline dev` calls in its place."""
