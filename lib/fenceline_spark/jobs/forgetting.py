"""Forget: the version that an application has committed is removed, so that it may begin anew.

Rule: what it committed stays in the log. A checkpoint from before then writes it once more.
"""

from __future__ import annotations

from fenceline.client import Client
from fenceline.model.transaction import OnceMark

_OF_QUERIES = "spark."  # before the id of a query, which its checkpoint has


def forget(client: Client, app_id: str) -> OnceMark | None:
    """Forget what an application has committed, and return what it was; ``None`` if nothing was remembered.

    Args:
        app_id: A ``txnAppId``, or the id of a streaming query.

    Raises:
        FencelineError: The service refused, or did not answer. Asking again is right.
    """
    for one in (app_id, _OF_QUERIES + app_id):
        mark = client.once(one)
        if mark.version >= 0:
            client.forget_once(one)
            return mark
    return None
