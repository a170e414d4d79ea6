"""The ports on SQLite: one directory, no server, no account.

``directory`` opens both stores, ``objects`` and ``items``, each of which is on a ``database``. ``file`` opens a
database, ``lock`` guards the directory, and ``range`` writes a search for a prefix as SQL.
"""
