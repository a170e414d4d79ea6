"""The sweeper: retention, collection and expiry, in bounded runs."""
