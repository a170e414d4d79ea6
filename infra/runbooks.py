"""The runbook of each alarm: the page of the documentation that says what to do (``docs/operate/runbooks``).

Rule: an alarm without a runbook can't be made, because its description ends with the runbook's address.
"""

from __future__ import annotations

from collections.abc import Mapping

# By the alarm's name. ``*`` is any function: the alarm ``ProduceErrors`` is one of ``*Errors``.
RUNBOOKS: Mapping[str, str] = {
    "CorruptLog": "corrupt-log",
    "Contention": "contention",
    "TransactionsOverdue": "transactions-overdue",
    "TransactionsHanging": "transactions-hanging",
    "TransactionsAhead": "transactions-ahead",
    "ServerErrors": "server-errors",
    "*Errors": "server-errors",
    "*Throttles": "throttles",
    "TableThrottles": "throttles",
    "SweeperSilent": "sweeper-silent",
    "DeadLetters": "dead-letters",
    "ReplicationDeadLetters": "dead-letters",
    "ReplicationGap": "replication-gap",
    "ReplicationOtherHistory": "other-history",
    "ReplicationLag": "replication-lag",
    "ReplicationUnread": "replication-lag",
    "ReplicationUnsent": "replication-lag",
}


def runbook_of(alarm: str) -> str:
    """Return the address of an alarm's runbook, below the root of the documentation.

    Raises:
        KeyError: The alarm has none; add it to ``RUNBOOKS``, and write the page.
    """
    of_any = next((name for name in RUNBOOKS if name[0] == "*" and alarm.endswith(name[1:])), alarm)
    return f"operate/runbooks/{RUNBOOKS.get(alarm) or RUNBOOKS[of_any]}"
