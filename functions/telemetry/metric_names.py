"""What is measured of the functions, by name, once: the functions write it, dashboard and alarms read it.

The rule: numbers, codes and names of functions only. No key, no value, and nothing of a request's body is ever told.
"""

from __future__ import annotations

NAMESPACE = "Fenceline"
SERVICE = "service"  # the dimension of every metric: the stack's name
CODE = "code"  # a second dimension, of REFUSALS_BY_CODE

APPEND_MS = "AppendMs"  # of a produce request, as the function saw it
CREATES = "CreateAttempts"
LOST_RACES = "LostRaces"  # creates that found an object there
CONFLICTS = "CreateConflicts"  # creates that met another under way
DUPLICATES = "Duplicates"
CHECKPOINT_AGE = "CheckpointAgeMs"  # of the partitions appended to; the oldest
REFUSALS = "Refusals"
REFUSALS_BY_CODE = "RefusalsByCode"
CONTENDED = "Contended"
CORRUPT_LOG = "CorruptLog"
TRANSACTIONS_HANGING = "TransactionsHanging"  # open in a partition, and no coordinator will end them
TRANSACTIONS_OVERDUE = "TransactionsOverdue"  # prepared, or past their time-out, for 5 minutes
TRANSACTIONS_AHEAD = "TransactionsAhead"  # open, with a time that the store's clock has not shown yet
REPLICATION_GAPS = "ReplicationGaps"  # links that stopped, since the source deleted what was not taken
OTHER_HISTORIES = "OtherHistories"  # links that stopped, since the source has another log than before
REPLICATION_LAG_MS = "ReplicationLagMs"  # of the oldest record that was not taken, or since a silent peer answered
UNSENT = "UnsentMessages"  # of the notifier, that a queue of a peer did not take

# The members of the sweeper's report that are metrics, too, of the replicator's, and of the notifier's.
OF_REPORTS = {
    "transactions_hanging": TRANSACTIONS_HANGING,
    "transactions_overdue": TRANSACTIONS_OVERDUE,
    "transactions_ahead": TRANSACTIONS_AHEAD,
}
OF_REPLICATION = {
    "gaps": REPLICATION_GAPS,
    "other_histories": OTHER_HISTORIES,
    "lag_ms": REPLICATION_LAG_MS,
    "corrupt": CORRUPT_LOG,
}
OF_NEWS = {"unsent_messages": UNSENT}
