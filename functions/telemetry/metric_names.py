"""The names of the functions' metrics, which the functions write, and dashboard and alarms read.

Rule: metrics have numbers, codes and names of functions only, and never a key, a value, or a part of a request's body.
"""

from __future__ import annotations

NAMESPACE = "Fenceline"
SERVICE = "service"  # the dimension of every metric: the stack's name
CODE = "code"  # a second dimension, of REFUSALS_BY_CODE

APPEND_MS = "AppendMs"  # the duration of a produce request, as the function saw it
CREATES = "CreateAttempts"
LOST_RACES = "LostRaces"  # creates that found an object there
CONFLICTS = "CreateConflicts"  # creates that met another under way
DUPLICATES = "Duplicates"
CHECKPOINT_AGE = "CheckpointAgeMs"  # the oldest among the partitions that were appended to
REFUSALS = "Refusals"
REFUSALS_BY_CODE = "RefusalsByCode"
CONTENDED = "Contended"
CORRUPT_LOG = "CorruptLog"
TRANSACTIONS_HANGING = "TransactionsHanging"  # open in a partition, and no coordinator will end them
TRANSACTIONS_OVERDUE = "TransactionsOverdue"  # prepared, or past their time-out, for 5 minutes
TRANSACTIONS_AHEAD = "TransactionsAhead"  # open, with a time that the store's clock has not shown yet
REPLICATION_GAPS = "ReplicationGaps"  # links that stopped, because the source deleted what was not taken
OTHER_HISTORIES = "OtherHistories"  # links that stopped, because the source has another log than before
REPLICATION_LAG_MS = "ReplicationLagMs"  # the age of the oldest record not taken, or the time since a peer answered
UNSENT = "UnsentMessages"  # the notifier's messages that a peer's queue did not take
GROUP_MEMBERS = "GroupMembers"
GROUPS_UNSETTLED = "GroupsUnsettled"  # with members, and not Stable for a minute
MEMBERS_REMOVED = "MembersRemoved"  # from their groups, without a request of their own
LOST_GROUP_WRITES = "LostGroupWrites"  # writes of a group's item that another write forestalled

# The members of the sweeper's report that are metrics, too, of the replicator's, and of the notifier's.
OF_REPORTS = {
    "transactions_hanging": TRANSACTIONS_HANGING,
    "transactions_overdue": TRANSACTIONS_OVERDUE,
    "transactions_ahead": TRANSACTIONS_AHEAD,
    "group_members": GROUP_MEMBERS,
    "groups_unsettled": GROUPS_UNSETTLED,
}
OF_REPLICATION = {
    "gaps": REPLICATION_GAPS,
    "other_histories": OTHER_HISTORIES,
    "lag_ms": REPLICATION_LAG_MS,
    "corrupt": CORRUPT_LOG,
}
OF_NEWS = {"unsent_messages": UNSENT}
