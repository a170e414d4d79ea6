"""The ports on SQLite: one directory, no server, no account."""
