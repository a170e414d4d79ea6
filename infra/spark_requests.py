"""The requests of Spark's jobs to the API, which are all that their role may send.

Rule: no request here makes, changes, trims or deletes a topic, or forgets a version. Data comes by URLs in the answers.

Not here: the role (``spark``), which needs Node to be imported.
"""

from __future__ import annotations

_TRANSACTION = "/v1/transactions/{transactional_id}"
REQUESTS: tuple[tuple[str, str], ...] = (
    ("GET", "/v1/topics"),
    ("GET", "/v1/topics/{topic}"),  # as a pattern of IAM, also what is below it: offsets and segments
    ("POST", "/v1/topics/{topic}/partitions/{partition}/records"),
    ("POST", "/v1/producer-ids"),
    ("GET", "/v1/transactions"),
    ("GET", _TRANSACTION),
    ("POST", f"{_TRANSACTION}/partitions"),
    ("POST", f"{_TRANSACTION}/extend"),
    ("POST", f"{_TRANSACTION}/end"),
    ("POST", "/v1/transactions/end"),
    ("GET", "/v1/once/{app_id}"),
    ("POST", "/v1/groups/{group}/offsets"),  # progressGroup
)
