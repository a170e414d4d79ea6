"""The role for jobs on AWS may ask all that source and sink ask, and each request that it may make is one of theirs."""

from __future__ import annotations

import re
from dataclasses import replace

from fenceline_http import routes
from fenceline_spark.sink.options import SinkOptions
from fenceline_testing import in_memory
from fenceline_testing.service import URL
from infra.spark_requests import REQUESTS
from tests.spark.batches import TOPIC, Run, rows


def granted(request: str) -> bool:
    """Return True if IAM lets the request through: each parameter is a star, which also takes slashes."""
    patterns = (f"{method} {re.sub('{[a-z_]+}', '.*', path)}" for method, path in REQUESTS)
    return any(re.fullmatch(pattern, request) for pattern in patterns)


def test_every_granted_request_is_a_route() -> None:
    assert set(REQUESTS) <= {(route.method, route.path) for route in routes.ROUTES}


def test_the_sink_asks_for_nothing_that_is_not_granted() -> None:
    """Rows by the driver, by tasks, a batch that failed, what a dead run left, and at least once."""
    small = SinkOptions(URL, topic=TOPIC, codec="none")
    asked: set[str] = set()
    for options in (small, replace(small, inline_bytes=0)):
        with in_memory() as lent:
            lent.client.create_topic(TOPIC, partitions=2)
            died = Run(lent, options)
            died.write(0, [[rows("a")], [rows("b")]])
            died.tasks(1, [[rows("c")], [rows("d")]])
            again = Run(lent, options)
            again.write(1, [[rows("c")], [rows("d")]])
            again.committer.abort(again.batch(2))
            asked |= {*died.carrier.log, *again.carrier.log}
    assert "POST /v1/transactions/end" in asked
    assert "GET /v1/transactions" in asked
    assert sorted(request for request in asked if not granted(request)) == []


def test_nothing_that_changes_a_topic_or_forgets_is_granted() -> None:
    for request in (
        "POST /v1/topics",
        "PATCH /v1/topics/orders",
        "DELETE /v1/topics/orders",
        "POST /v1/topics/orders/partitions/0/trim",
        "POST /v1/topics/orders/partitions/0/compact",
        "DELETE /v1/once/spark.5c1f",
        "POST /v1/topics/orders/producers",
    ):
        assert not granted(request)
