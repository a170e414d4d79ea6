"""Whatever is sent, the door answers with a typed request or with a refusal of its form."""

from __future__ import annotations

import json
from typing import cast
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fenceline.errors import FencelineError
from fenceline_http.request import Request
from fenceline_http.request_schema import Body, Query
from fenceline_http.routes import ROUTES
from fenceline_http.wiring import Service
from tests.support.http_events import BATCH_TYPE, event
from tests.support.tries import tries

SERVICE = cast("Service", None)  # no parser asks it anything
FORM_CODES = {
    "INVALID_REQUEST",
    "INVALID_REQUIRED_ACKS",
    "INVALID_TRANSACTION_TIMEOUT",
    "UNSUPPORTED_MEDIA_TYPE",
    "CORRUPT_MESSAGE",
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
}
NAMES = [
    "records", "value", "key", "headers", "timestamp", "encoding", "acks", "expected_offset", "producer",
    "producer_id", "producer_epoch", "sequence", "session", "session_id", "topic_epoch", "transactional_id",
    "partitions", "topic", "partition", "name", "config", "regions", "before_offset", "offset", "tail_offset",
    "max_records", "max_bytes", "wait_ms", "isolation", "compacted", "group", "limit", "prefix", "start_after",
    "origin", "transaction_timeout_ms", "cumulative", "individual", "offsets", "metadata", "initial_position",
    "replicate_subscription_state", "start_partition", "require_stable", "resources", "resource",
    "generation",
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["", "all", "utf8", "base64", "AA==", "0", "\ud800", "own", "true"])
    | st.text()
)
NAME = st.sampled_from(NAMES) | st.text()
TREES = st.recursive(
    SCALARS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(NAME, children, max_size=6),
    max_leaves=25,
)
BODIES = TREES.map(json.dumps) | st.binary() | st.text()
# json.loads takes NaN back, so it is among the trees; what the door must take is tested elsewhere, row by row.
QUERIES = (
    st.lists(st.tuples(NAME, SCALARS.map(lambda value: str(value).replace("\ud800", "%")))).map(urlencode) | st.text()
)
CONTENT_TYPES = st.sampled_from(["application/json", BATCH_TYPE, "", "text/plain"]) | st.text()
DECLARED = {one for route in ROUTES for one in (route.takes, route.batches) if one is not None}


every = pytest.mark.parametrize("declared", sorted(DECLARED, key=lambda one: one.__name__))
sendings = given(body=BODIES, query=st.just("") | QUERIES, content_type=st.just("application/json") | CONTENT_TYPES)


@every
@tries(30)
@sendings
def test_a_request_is_typed_or_refused_for_its_form(
    declared: type[Body | Query], body: str | bytes, query: str, content_type: str
) -> None:
    """Here the requests are by chance; ``test_declared_forms`` makes each wrong form in turn."""
    judge(declared, body, query, content_type)


@pytest.mark.prove
@pytest.mark.slow
@every
@settings(max_examples=500)
@sendings
def test_any_of_many_requests_is_typed_or_refused_for_its_form(
    declared: type[Body | Query], body: str | bytes, query: str, content_type: str
) -> None:
    judge(declared, body, query, content_type)


def judge(declared: type[Body | Query], body: str | bytes, query: str, content_type: str) -> None:
    sent = event("POST", "/", query, {"content-type": content_type, "accept": content_type}, body)
    try:
        declared.of(Request(sent, SERVICE))
    except FencelineError as error:
        assert error.code in FORM_CODES  # noqa: PT017 - anything else is to fail the test
        json.dumps(error.problem(), ensure_ascii=False).encode()


@given(topic=st.text(min_size=1), partition=st.text(min_size=1))
def test_a_place_is_legal_or_unknown(topic: str, partition: str) -> None:
    try:
        asked = Request(event("GET", "/"), SERVICE)
        asked.parameters = {"topic": topic, "partition": partition}
        name, number = asked.partition
    except FencelineError as error:
        assert error.code == "UNKNOWN_TOPIC_OR_PARTITION"  # noqa: PT017 - anything else is to fail the test
    else:
        assert (name, number) == (topic, int(partition))
