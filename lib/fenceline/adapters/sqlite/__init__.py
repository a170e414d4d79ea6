"""The ports on SQLite: one directory, no server, no account.

``directory`` opens both stores; ``objects`` and ``items`` are these, each on a ``database``. ``file`` opens a database,
``lock`` guards the directory, and ``range`` writes a search for a prefix as SQL.
"""
