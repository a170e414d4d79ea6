"""Forget: the version that an application has committed is removed, so that the application may begin again.

Rule: what the application committed stays in the log, so that a checkpoint from before writes it once more.
"""

from __future__ import annotations

from fenceline import limits
from fenceline.client import Client
from fenceline.model.transaction import OnceMark, check_transactional_id
from fenceline_spark.jobs.replay_plan import mark_id

_OF_QUERIES = "spark."  # before the id of a query, which its checkpoint has


def forget(client: Client, app_id: str) -> OnceMark | None:
    """Forget the version that an application has committed, and return it; ``None`` if none was remembered.

    The plan of a replay of this name is forgotten, too.

    Args:
        app_id: A ``txnAppId``, or the id of a streaming query.

    Raises:
        InvalidRequestError: No application can have this id.
        FencelineError: The service refused, or did not answer. Asking again is right.
    """
    check_transactional_id(app_id)
    found = None
    for one in (app_id, _OF_QUERIES + app_id):
        mark = _mark(client, one)
        if mark.version >= 0:
            client.forget_once(one)
            found = mark
            break
    number = 0
    while _mark(client, mark_id(app_id, number)).version >= 0:
        number += 1
    # From the last to the first, because a run that is cut off then leaves the first, by which the next one finds them
    # all.
    for left in reversed(range(number)):
        client.forget_once(mark_id(app_id, left))
        found = found or OnceMark(app_id, 0)
    return found


def _mark(client: Client, app_id: str) -> OnceMark:
    """Return the mark of an id; an empty one for an id that is too long for any application."""
    if len(app_id.encode()) > limits.TRANSACTIONAL_ID_BYTES_MAX:
        return OnceMark(app_id, -1)
    return client.once(app_id)
