"""What becomes of one request: answers, errors, lost answers and retries."""

import contextlib
import json
import socket
import ssl
import subprocess
import sys

import httpx
import pytest

from fenceline import errors
from fenceline.answers import to_json
from fenceline.client import Client
from fenceline.client.transport import BACKOFF, FIRST_CONNECTION_MS
from fenceline.model.record import Record
from fenceline.model.results import ProducerRef, SessionRef
from tests.support.runtime import AheadRuntime
from tests.support.wire import Wire, answers, loses_the_answer, loses_the_request, refused, refuses_the_connection

BOUNDS = {"log_start_offset": 0, "next_offset": 0, "last_stable_offset": 0}
OFFSETS = {**BOUNDS, "topic_epoch": -1, "access_mode": "Shared", "compaction_horizon": 0}
TOPIC = {"name": "t", "topic_id": "id", "partitions": 1, "config": {}, "regions": ["local"], "created_at": 1}
IDEMPOTENT = ProducerRef(producer_id=7, producer_epoch=0, sequence=0)


def client_of(*script, runtime=None, **options):
    """Return a client whose requests meet ``script`` one after the other, the last item forever; and its requests."""
    seen = []

    def answer(request):
        seen.append(request)
        item = script[min(len(seen), len(script)) - 1]
        if isinstance(item, Exception):
            raise item
        return item

    transport = httpx.MockTransport(answer)
    return Client("http://fake/", runtime=runtime or AheadRuntime(), http=transport, **options), seen


@pytest.mark.parametrize("code", sorted(errors.TABLE))
def test_every_problem_becomes_the_error_of_its_code_with_its_members(code):
    problem = {**errors.TABLE[code]("so it is").problem(), "next_offset": 43}
    client, _ = client_of(httpx.Response(400, json=problem), retry_ms=0)

    with pytest.raises(errors.TABLE[code]) as caught:
        client.produce("t", 0, [Record(b"x")])

    assert caught.value.detail == "so it is"
    assert caught.value.next_offset == 43


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, errors.InvalidRequestError),
        (401, errors.UnauthenticatedError),
        (403, errors.NotAuthorizedError),
        (404, errors.NotFoundError),
        (413, errors.RecordListTooLargeError),
        (429, errors.ThrottledError),
        (500, errors.OutcomeUnknownError),
        (502, errors.OutcomeUnknownError),
        (503, errors.OutcomeUnknownError),
        (504, errors.OutcomeUnknownError),
    ],
)
@pytest.mark.parametrize("body", [b"<html>", b'{"message": "Forbidden"}', b"[1]", b""])
def test_an_answer_of_a_gateway_is_mapped_by_its_status(status, expected, body):
    client, _ = client_of(httpx.Response(status, content=body), retry_ms=0)

    with pytest.raises(expected):
        client.create_topic("t")


@pytest.mark.parametrize(
    ("next_step", "expected"),
    [
        ("fix", errors.InvalidRequestError),
        ("retry", errors.StoreUnavailableError),
        ("check", errors.OutcomeUnknownError),
        ("stop", errors.CorruptLogError),
        ("other", errors.OutcomeUnknownError),
    ],
)
def test_a_code_of_a_newer_service_keeps_its_next_step(next_step, expected):
    problem = {"code": "NEWER", "next_step": next_step, "detail": "so it is", "status": 400}
    client, _ = client_of(httpx.Response(400, json=problem), retry_ms=0)

    with pytest.raises(expected, match="so it is code=NEWER"):
        client.create_topic("t")


@pytest.mark.parametrize("error", [errors.ThrottledError, errors.ContendedError, errors.StoreUnavailableError])
def test_a_retry_answer_is_sent_again_even_for_what_must_not_be_repeated(error):
    client, seen = client_of(refused(error("busy")), refused(error("busy")), httpx.Response(201, json=TOPIC))

    assert client.create_topic("t").topic_id == "id"
    assert len(seen) == 3


def test_pauses_are_jittered_and_grow_to_a_bound_within_the_deadline():
    runtime = AheadRuntime()
    client, _ = client_of(refused(errors.ThrottledError("busy")), runtime=runtime, retry_ms=30_000)

    with pytest.raises(errors.ThrottledError):
        client.health()

    assert len(set(runtime.slept_ms)) == len(runtime.slept_ms) > 5
    assert runtime.slept_ms[0] <= 50
    assert all(pause <= BACKOFF.max_ms for pause in runtime.slept_ms)
    assert max(runtime.slept_ms) > 200
    assert sum(runtime.slept_ms) < 30_000


@pytest.mark.parametrize(
    "error", [errors.OffsetMismatchError, errors.UnknownTopicOrPartitionError, errors.CorruptLogError]
)
def test_a_permanent_refusal_is_not_retried(error):
    client, seen = client_of(refused(error("no")))

    with pytest.raises(error):
        client.offsets("t", 0)

    assert len(seen) == 1


@pytest.mark.parametrize(
    "lost", [httpx.ReadTimeout("x"), httpx.ReadError("x"), httpx.RemoteProtocolError("x"), httpx.WriteError("x")]
)
def test_an_append_without_a_sequence_is_never_sent_again_after_a_lost_answer(lost):
    client, seen = client_of(lost)

    with pytest.raises(errors.OutcomeUnknownError):
        client.produce("t", 0, [Record(b"x")], expected_offset=0)

    assert len(seen) == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.create_topic("t"),
        lambda client: client.alter_topic("t", partitions=2),
        lambda client: client.delete_topic("t"),
    ],
)
def test_a_change_of_a_topic_is_never_sent_again_after_a_lost_answer(write):
    client, seen = client_of(httpx.ReadTimeout("x"))

    with pytest.raises(errors.OutcomeUnknownError):
        write(client)

    assert len(seen) == 1


@pytest.mark.parametrize("never", [httpx.ConnectError("x"), httpx.ConnectTimeout("x"), httpx.PoolTimeout("x")])
def test_a_connection_that_was_never_made_is_tried_again_for_every_request(never):
    client, seen = client_of(never, never, httpx.Response(201, json=TOPIC))

    client.create_topic("t")

    assert len(seen) == 3


def test_without_any_connection_the_store_is_unavailable_and_nothing_was_written():
    client, seen = client_of(httpx.ConnectError("connection refused"), retry_ms=60_000)

    with pytest.raises(errors.StoreUnavailableError, match="connection refused"):
        client.produce("t", 0, [Record(b"x")])

    assert len(seen) > 2


def refusal():
    """Return what httpx raises where no server listens."""
    error = httpx.ConnectError("[Errno 111] Connection refused")
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    return error


def test_a_refused_first_connection_is_an_error_with_the_remedy_soon():
    runtime = AheadRuntime()
    client, seen = client_of(refusal(), runtime=runtime, retry_ms=600_000)

    with pytest.raises(errors.StoreUnavailableError) as caught:
        client.topic("t")

    assert caught.value.detail == (
        'no fenceline answers at http://fake: connection refused; start one with "fenceline dev", or set FENCELINE_URL'
    )
    assert sum(runtime.slept_ms) < FIRST_CONNECTION_MS <= 1_500
    assert 4 < len(seen) < 20


def test_a_closed_port_is_reported_as_refused():
    with socket.socket() as closed:  # bound, to keep others from it, and not listening
        closed.bind(("127.0.0.1", 0))
        url = f"http://user:password@127.0.0.1:{closed.getsockname()[1]}"
        runtime = AheadRuntime()
        with pytest.raises(errors.StoreUnavailableError) as caught:
            Client(url, runtime=runtime).health()

    assert caught.value.detail.startswith("no fenceline answers at http://127.0.0.1:")
    assert ": connection refused; start one" in caught.value.detail
    assert "password" not in caught.value.detail
    assert sum(runtime.slept_ms) < FIRST_CONNECTION_MS


@pytest.mark.parametrize(
    "first", [httpx.Response(200, json=TOPIC), refused(errors.ThrottledError("busy")), httpx.ReadTimeout("x")]
)
def test_a_service_that_was_reached_once_is_waited_for_while_it_starts_again(first):
    runtime = AheadRuntime()
    client, seen = client_of(first, *[refusal()] * 12, httpx.Response(200, json=TOPIC), runtime=runtime)

    client.topic("t")
    if first.__class__ is httpx.Response and first.is_success:
        client.topic("t")

    assert len(seen) == 14
    assert sum(runtime.slept_ms) > FIRST_CONNECTION_MS


def test_an_unreachable_network_is_retried_for_the_whole_time():
    """Only a refusal says that a machine is there, and no server on it."""
    runtime = AheadRuntime()
    client, _ = client_of(httpx.ConnectError("network is unreachable"), runtime=runtime, retry_ms=20_000)

    with pytest.raises(errors.StoreUnavailableError, match="network is unreachable"):
        client.health()

    assert sum(runtime.slept_ms) > 10_000


def test_each_repetition_is_a_warning_that_says_what_and_why_and_how_often(caplog):
    runtime = AheadRuntime()
    script = [refused(errors.ThrottledError("busy")), httpx.ReadTimeout("x"), httpx.Response(200, json=TOPIC)]
    client, _ = client_of(*script, runtime=runtime)

    client.topic("t")

    first, second = (int(pause) for pause in runtime.slept_ms)
    again = "the client sends a request again"
    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records if one.name == "fenceline"] == [
        ("fenceline", "WARNING", f"{again}: request=GET /v1/topics/t why=THROTTLED try=2 pause_ms={first}"),
        (
            "fenceline",
            "WARNING",
            f"{again}: request=GET /v1/topics/t why=OUTCOME_UNKNOWN (ReadTimeout) try=3 pause_ms={second}",
        ),
    ]


def test_no_warning_shows_a_record_or_a_session(caplog):
    session_id = "0123456789abcdef0123456789abcdef"
    lost = [refused(errors.ThrottledError(f"session_id={session_id} value=secret")), httpx.ReadTimeout(session_id)]
    for call in (
        lambda client: client.produce(
            "t", 0, [Record(b"secret")], producer=IDEMPOTENT, session=SessionRef(session_id, 3)
        ),
        lambda client: client.read("t", 0, offset=0, group="g", session_id=session_id),
        lambda client: client.heartbeat(session_id),
        lambda client: client.close_session(session_id),
        lambda client: client.acknowledge("t", "s", 0, cumulative=1, session_id=session_id),
    ):
        client, _ = client_of(*lost, refused(errors.NotFoundError("no")))
        with pytest.raises(errors.FencelineError):
            call(client)

    assert len(caplog.records) == 10
    assert "secret" not in caplog.text
    assert session_id not in caplog.text
    assert "/v1/sessions/01234567…/heartbeat" in caplog.text


def test_a_program_that_sets_up_no_logging_sees_nothing_of_it():
    program = (
        "import httpx\n"
        "from fenceline import Client, errors\n"
        "def answer(request): raise httpx.ConnectError('x')\n"
        "try: Client('http://fake', retry_ms=200, http=httpx.MockTransport(answer)).health()\n"
        "except errors.StoreUnavailableError: pass"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")


def test_a_read_whose_answer_is_lost_is_sent_again():
    client, seen = client_of(httpx.ReadTimeout("x"), httpx.Response(502), httpx.Response(200, json=OFFSETS))

    assert client.offsets("t", 0).bounds.next_offset == 0
    assert len(seen) == 3


def test_a_read_that_is_never_answered_says_that_nothing_was_written():
    client, _ = client_of(httpx.ReadTimeout("x"), retry_ms=500)

    with pytest.raises(errors.StoreUnavailableError):
        client.offsets("t", 0)


def test_an_append_with_a_sequence_is_sent_again_with_the_same_bytes_and_stored_once():
    service = Wire(faults={"appendRecords": [loses_the_answer, refuses_the_connection, loses_the_request]})

    appended = service.client().produce("t", 0, [Record(b"x"), Record(b"y")], producer=IDEMPOTENT)

    assert (appended.base_offset, appended.count, appended.duplicate) == (0, 2, True)
    assert service.stored(0) == [b"x", b"y"]
    assert len({one.body for one in service.produced}) == 1
    assert len(service.produced) == 4


@pytest.mark.parametrize("lost", [loses_the_answer, loses_the_request])
def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(lost):
    """The refusal speaks of the second request only; the first may have been carried out."""
    service = Wire(faults={"appendRecords": [lost, answers(errors.UnknownTopicOrPartitionError("gone"))]})

    with pytest.raises(errors.OutcomeUnknownError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        service.client().produce("t", 0, [Record(b"x")], producer=IDEMPOTENT)


def test_an_append_with_a_sequence_that_is_never_answered_has_an_unknown_outcome():
    """So it is where the last answer was a retry error, too: that one speaks of its own request only."""
    service = Wire(faults={"appendRecords": [loses_the_answer, *[answers(errors.ContendedError("busy"))] * 100]})

    with pytest.raises(errors.OutcomeUnknownError):
        service.client(retry_ms=5_000).produce("t", 0, [Record(b"x")], producer=IDEMPOTENT)


def test_a_lost_trim_is_sent_again():
    client, seen = client_of(httpx.ReadTimeout("x"), httpx.Response(200, json={"log_start_offset": 5}))

    assert client.trim("t", 0, 5) == 5
    assert [json.loads(request.content) for request in seen] == [{"before_offset": 5}] * 2


def test_expected_offsets_travel_as_one_number_or_one_for_each_record():
    service = Wire()
    client = service.client()

    client.produce("t", 0, [Record(b"x")], expected_offset=0)
    client.produce("t", 0, [Record(b"x"), Record(b"y")], expected_offset=[1, -1])
    client.produce("t", 0, [Record(b"x")])

    assert [one.value.get("expected_offset") for one in service.produced] == ["0", "1,-1", None]


def test_topics_are_listed_page_by_page_until_there_are_no_more():
    pages = [
        {"topics": [{**TOPIC, "name": "a"}, {**TOPIC, "name": "b"}], "has_more": True},
        {"topics": [{**TOPIC, "name": "c"}], "has_more": False},
    ]
    client, seen = client_of(*(httpx.Response(200, json=page) for page in pages))

    assert [topic.name for topic in client.topics(prefix="p")] == ["a", "b", "c"]
    assert [dict(request.url.params) for request in seen] == [{"prefix": "p"}, {"prefix": "p", "start_after": "b"}]


def test_every_list_is_whole_however_many_pages_it_comes_in():
    """Subscriptions and offsets go on after the last one, producers after the last name of both lists."""

    def offset(partition):
        return {"topic": "a", "partition": partition, "offset": 5, "metadata": ""}

    def subscription(name):
        return {"name": name, "topic": "t", "replicate_subscription_state": False}

    def producer(name, **more):
        fixed = {"session_id": "s", "access_mode": "Shared", "topic_epochs": {}, "next_offsets": {}, "expires_at": 0}
        return {"producer_name": name, "state": "queued" if more else "granted", **fixed, **more}

    def walked(call, *pages):
        client, seen = client_of(*(httpx.Response(200, json=page) for page in pages))
        return call(client), [request.url.params.get("start_after") for request in seen]

    found, starts = walked(
        lambda client: [one.partition for one in client.committed_offsets("g", topic="a")],
        {"offsets": [offset(8), offset(9)], "has_more": True},
        {"offsets": [offset(10)], "has_more": False},
    )
    assert (found, starts) == ([8, 9, 10], [None, "a/9"])
    found, starts = walked(
        lambda client: [one.name for one in client.subscriptions("t")],
        {"subscriptions": [subscription("a")], "has_more": True},
        {"subscriptions": [subscription("b")], "has_more": False},
    )
    assert (found, starts) == (["a", "b"], [None, "a"])
    producers, starts = walked(
        lambda client: client.producers("t"),
        {"producers": [producer("a")], "waiting": [producer("b", queue_position=1)], "has_more": True},
        {"producers": [producer("c")], "waiting": [], "has_more": True},
        {"producers": [], "waiting": [producer("d", queue_position=0)], "has_more": False},
    )
    assert [one.producer_name for one in producers.granted] == ["a", "c"]
    assert [one.producer_name for one in producers.waiting] == ["d", "b"]
    assert starts == [None, "b", "c"]


def test_markers_go_on_before_the_place_that_a_page_names_and_end_at_the_limit():
    """A page without markers may go on, too, and no page is asked for more than is still wanted."""

    def page(*offsets, **more):
        fixed = {"timestamp": 1, "topic_epoch": 0, "access_mode": "Shared", "records": 0}
        names = dict.fromkeys(("session_id", "client_name", "producer_name"))
        markers = [{"offset": offset, **fixed, **names} for offset in offsets]
        return httpx.Response(200, json={"markers": markers, "has_more": bool(more), **more})

    def walked(*pages, **options):
        client, seen = client_of(*pages)
        found = [one.offset for one in client.markers("t", 0, **options)]
        return found, [(one.url.params.get("before_offset"), one.url.params["limit"]) for one in seen]

    pages = (page(90, 80, go_on_before=80), page(go_on_before=50), page(40))
    assert walked(*pages) == ([90, 80, 40], [(None, "100"), ("80", "100"), ("50", "100")])
    assert walked(*pages, before_offset=95, limit=3) == ([90, 80, 40], [("95", "3"), ("80", "1"), ("50", "1")])
    assert walked(*pages, limit=2) == ([90, 80], [(None, "2")])


def test_access_is_whole_however_many_pages_it_comes_in():
    def page(*partitions, has_more):
        fixed = {"topic_epoch": 0, "access_mode": "Shared", "holder": None, "waiting": 0, "owner": None}
        found = [{"partition": number, **fixed, "group_owners": []} for number in partitions]
        return httpx.Response(200, json={"partitions": found, "has_more": has_more})

    client, seen = client_of(page(0, 1, has_more=True), page(2, has_more=False))
    assert [one.partition for one in client.access("t")] == [0, 1, 2]
    assert [one.url.params["start_partition"] for one in seen] == ["0", "2"]


def test_a_list_of_an_older_service_is_one_whole_page():
    client, seen = client_of(httpx.Response(200, json={"subscriptions": []}))

    assert client.subscriptions("t") == []
    assert len(seen) == 1


def test_a_cursor_that_comes_in_parts_is_put_together():
    def cursor(partition, ranges, **more):
        shown = {"partition": partition, "mark_delete_offset": 0, "backlog": 9}
        return {**shown, "individually_acknowledged": ranges, **more}

    def page(*cursors, has_more):
        named = {"name": "s", "topic": "t", "replicate_subscription_state": False}
        return httpx.Response(200, json={**named, "partitions": cursors, "has_more": has_more})

    client, seen = client_of(
        page(cursor(0, []), cursor(1, [[1, 2], [3, 5]], has_more=True), has_more=True),
        page(cursor(1, [[7, 8]], has_more=True), has_more=True),
        page(cursor(1, [[9, 11]]), has_more=True),
        page(cursor(2, [[0, 1]]), has_more=False),
    )

    found = client.subscription("t", "s").partitions
    assert [one.partition for one in found] == [0, 1, 2]
    assert found[1].individually_acknowledged == [(1, 2), (3, 5), (7, 8), (9, 11)]
    asked = [(request.url.params["start_partition"], request.url.params.get("start_offset")) for request in seen]
    assert asked == [("0", None), ("1", "5"), ("1", "8"), ("2", None)]


def test_members_that_a_newer_service_adds_are_passed_over():
    client, _ = client_of(httpx.Response(200, json={**TOPIC, "newer": 1}))

    assert client.topic("t").partitions == 1


@pytest.mark.parametrize(("name", "path"), [("a/b", b"/v1/topics/a%2Fb"), ("a b?c", b"/v1/topics/a%20b%3Fc")])
def test_any_topic_name_is_one_step_of_a_path(name, path):
    client, seen = client_of(httpx.Response(200, json=TOPIC))

    client.topic(name)

    assert seen[0].url.raw_path == path


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_by_which_a_path_would_lead_elsewhere_is_not_sent(name):
    client, seen = client_of(httpx.Response(204))

    for call in (
        lambda: client.delete_topic(name),
        lambda: client.delete_subscription("t", name),
        lambda: client.committed_offsets(name),
        lambda: client.close_producer("t", name, "s"),
    ):
        with pytest.raises(errors.InvalidRequestError, match="nothing can have this name"):
            call()
    assert seen == []


@pytest.mark.parametrize(
    ("encoding", "key", "value"), [("utf8", "k", "é"), ("base64", "aw==", "w6k=")], ids=["utf8", "base64"]
)
def test_a_page_has_the_records_bytes_in_either_encoding(encoding, key, value):
    record = {"offset": 3, "timestamp": 5, "key": key, "value": value, "headers": [[value, None]], "topic_epoch": 1}
    page = {"records": [record, {**record, "key": None, "value": None}], "encoding": encoding, "position": 5, **BOUNDS}
    client, _ = client_of(httpx.Response(200, json=page))

    first, tombstone = client.read("t", 0, offset=3).records

    assert (first.offset, first.key, first.value, first.origin) == (3, b"k", "é".encode(), None)
    assert first.headers == [(value, None)]
    assert (tombstone.key, tombstone.value) == (None, None)


def test_a_cut_value_says_how_long_it_is():
    record = {"offset": 3, "timestamp": 5, "key": None, "value": "dg==", "headers": [], "topic_epoch": 1}
    page = {"records": [{**record, "value_bytes": 9}, record], "encoding": "base64", "position": 5, **BOUNDS}
    client, seen = client_of(httpx.Response(200, json=page))

    cut, whole = client.read("t", 0, offset=3, value_bytes_max=1).records

    assert (cut.value, cut.value_bytes, whole.value_bytes) == (b"v", 9, None)
    assert seen[0].url.params["value_bytes_max"] == "1"


def test_a_page_has_its_batches_where_they_were_asked_for():
    numbers = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 0, "appended_at": 5, "bytes": 99}
    one = {"base_offset": 3, "next_offset": 5, "codec": "zstd", "is_transactional": True, "outcome": "open", **numbers}
    page = {"records": [], "encoding": "base64", "position": 5, **BOUNDS}
    client, seen = client_of(httpx.Response(200, json={**page, "batches": [one]}), httpx.Response(200, json=page))

    (batch,) = client.read("t", 0, offset=3, batches=True).batches

    assert (batch.producer_id, batch.codec, batch.outcome, batch.next_offset) == (7, "zstd", "open", 5)
    assert client.read("t", 0, offset=3).batches is None
    assert [request.url.params.get("batches") for request in seen] == ["true", None]


def test_a_check_of_segments_has_its_findings():
    finding = {"key": "log/0.log", "offset": 4, "what": "damaged"}
    answer = {"position": 9, "segments": 3, "records": 5, "findings": [finding], "has_more": True}
    client, seen = client_of(httpx.Response(200, json=answer))

    found = client.verify("t", 1, offset=4, limit=3)

    assert (found.position, found.segments, found.records, found.has_more) == (9, 3, 5, True)
    assert [(one.key, one.offset, one.what) for one in found.findings] == [("log/0.log", 4, "damaged")]
    assert seen[0].url.raw_path.decode() == "/v1/topics/t/partitions/1/verify?offset=4&limit=3"


def test_every_answer_with_offsets_has_them_by_their_names():
    """The contract names them beside the rest of the answer, and so does each type."""
    offsets = {"log_start_offset": 3, "next_offset": 9, "last_stable_offset": 8}
    page = {"records": [], "encoding": "base64", "position": 5, **offsets}
    headers = {f"fenceline-{name.replace('_', '-')}": str(value) for name, value in {**offsets, "position": 5}.items()}
    segments = {"segments": [], "has_more": False, "topic_id": "id", **offsets}
    for call, answer in (
        (lambda client: client.read("t", 0, offset=5), httpx.Response(200, json=page)),
        (lambda client: client.read_subscription("t", "s", 0), httpx.Response(200, json=page)),
        (lambda client: client.read_batches("t", 0, 5), httpx.Response(200, content=b"", headers=headers)),
        (lambda client: client.offsets("t", 0), httpx.Response(200, json={**OFFSETS, **offsets})),
        (lambda client: client.segments("t", 0), httpx.Response(200, json=segments)),
    ):
        found = call(client_of(answer)[0])
        assert {name: getattr(found, name) for name in offsets} == offsets


def test_answers_of_two_numbers_name_them():
    client, _ = client_of(
        httpx.Response(200, json={"offset": 4, "timestamp": 99}),
        httpx.Response(200, json={"producer_id": 7, "producer_epoch": 0}),
    )

    first = client.offset_at("t", 0, 98)
    assert (first.offset, first.timestamp) == first == (4, 99)
    mine = client.producer_id()
    assert (mine.producer_id, mine.producer_epoch) == mine == (7, 0)


def test_the_first_record_from_a_time_on_is_asked_for_of_all_partitions_at_once():
    listed = [{"partition": 0, "offset": 4, "timestamp": 99}, {"partition": 1, "offset": None, "timestamp": None}]
    answer = httpx.Response(200, json={"topic_id": "id", "partitions": listed, "has_more": False})
    client, seen = client_of(answer)

    assert client.topic_offsets_at("t", 98) == {0: (4, 99), 1: None}
    assert dict(seen[0].url.params) == {"timestamp": "98", "start_partition": "0", "limit": "100"}


def test_a_held_read_waits_for_its_answer_longer_than_others():
    client, seen = client_of(httpx.Response(200, json=OFFSETS), timeout_ms=1_000)
    client.offsets("t", 0)
    page = {"records": [], "encoding": "base64", "position": 0, **BOUNDS}
    held, seen_held = client_of(httpx.Response(200, json=page), timeout_ms=1_000)
    held.read("t", 0, offset=0, wait_ms=20_000)

    assert seen[0].extensions["timeout"]["read"] == 1
    assert seen_held[0].extensions["timeout"]["read"] == 21


def test_a_success_that_is_no_fenceline_answer_is_not_found():
    client, _ = client_of(httpx.Response(200, content=b"<html>"))

    with pytest.raises(errors.NotFoundError, match="no fenceline service"):
        client.health()


def test_after_a_lost_answer_it_leaves_the_outcome_unknown():
    """Another server answers for the service, such as a portal that asks for a login."""
    client, seen = client_of(httpx.ReadTimeout("x"), httpx.Response(200, content=b"<html>"))
    with pytest.raises(errors.OutcomeUnknownError, match="no fenceline service"):
        client.produce("t", 0, [Record(b"v")], producer=IDEMPOTENT)
    assert len(seen) == 2


@pytest.mark.parametrize("url", ["ftp://fake", "fake:8080", "http://[::1"])
def test_an_invalid_url_is_an_invalid_request(url):
    with pytest.raises(errors.InvalidRequestError, match="url="):
        Client(url, retry_ms=0).health()


def test_a_closed_client_sends_nothing():
    client, seen = client_of(httpx.Response(200, json={"status": "ok"}))

    with client:
        client.health()
    with pytest.raises(errors.StoreUnavailableError, match="closed"):
        client.health()

    assert len(seen) == 1


@pytest.mark.parametrize(
    ("path", "name", "entry", "last", "listed"),
    [
        (
            "/v1/sessions",
            "sessions",
            {"session_id": "ab12cd34", "client_name": None, "since": 1, "expires_at": 2, "holds": 3},
            "ab12cd34",
            lambda client: client.sessions(),
        ),
        (
            "/v1/locks",
            "locks",
            {
                "resource": "a/b",
                "group": None,
                "generation": 2,
                "fencing_token": 1,
                "session_id": "ab12cd34",
                "client_name": "cron",
                "since": 1,
                "until": 2,
            },
            "a%2Fb",
            lambda client: client.locks(),
        ),
        (
            "/v1/once",
            "versions",
            {"app_id": "hourly", "version": 7, "note": "run-1", "committed_at": 1},
            "hourly",
            lambda client: client.once_versions(),
        ),
    ],
)
def test_a_list_goes_on_after_its_last_entry_or_where_the_service_says(path, name, entry, last, listed):
    client, seen = client_of(
        httpx.Response(200, json={name: [entry], "has_more": True}),
        httpx.Response(200, json={name: [], "has_more": True, "go_on_after": "x"}),
        httpx.Response(200, json={name: [entry], "has_more": False}),
    )
    assert [to_json(one) for one in listed(client)] == [entry, entry]
    assert [one.url.raw_path.decode() for one in seen] == [path, f"{path}?start_after={last}", f"{path}?start_after=x"]


def test_locks_of_a_group_are_asked_for_by_its_name():
    client, seen = client_of(httpx.Response(200, json={"locks": [], "has_more": False}))
    assert list(client.locks("a b")) == []
    assert dict(seen[0].url.params) == {"group": "a b"}


def test_sessions_and_claims_of_a_client_have_its_name():
    session = {"session_id": "s1", "lease_ms": 30_000, "expires_at": 1}
    producer = {"producer_name": "p", "session_id": "s1", "access_mode": "Shared", "state": "granted"}
    claimed = {"producer": {**producer, "topic_epochs": {}, "next_offsets": {}, "expires_at": 1}}
    client, seen = client_of(httpx.Response(201, json={**session, **claimed}), client_name="web-3:4711")
    client.create_session()
    client.create_session(client_name="other")
    client.claim("t")
    client.claim("t", session_id="s1")  # no name: its session has one already

    names = [json.loads(request.content).get("client_name") for request in seen]
    assert names == ["web-3:4711", "other", "web-3:4711", None]


@pytest.mark.parametrize(("url", "is_read"), [("http://fake", False), ("HTTP://fake/", False), ("https://fake", True)])
def test_the_authorities_are_read_only_where_a_certificate_is_asked_for(monkeypatch, url, is_read):
    read = []

    def default(*arguments, **options):
        read.append((arguments, options))
        return make(*arguments, **options)

    make = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", default)
    with Client(url):
        assert bool(read) == is_read


def test_a_client_that_asks_for_no_certificate_would_believe_none(monkeypatch):
    given = []

    def noted(**options):
        given.append(options["verify"])
        return make(**options)

    make = httpx.Client
    monkeypatch.setattr(httpx, "Client", noted)
    with Client("http://fake"), Client("https://fake"):
        pass
    nobody, usual = given
    assert usual.verify_mode == ssl.CERT_REQUIRED
    assert usual.get_ca_certs() != []
    assert nobody.verify_mode == ssl.CERT_REQUIRED
    assert nobody.check_hostname
    assert nobody.get_ca_certs() == []


# Proxies and names


PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture
def environment(monkeypatch):
    """Return a function that sets the variables of proxies, and no others."""

    def set_to(**given):
        for name in PROXIES:
            for each in (name, name.lower()):
                monkeypatch.delenv(each, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)

    set_to()
    return set_to


@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("http://127.0.0.1:8080", {"ALL_PROXY": "socks5://127.0.0.1:1"}),
        ("http://127.9.9.9:8080", {"ALL_PROXY": "socks5://127.0.0.1:1"}),
        ("http://localhost:8080", {"ALL_PROXY": "socks5://127.0.0.1:1"}),
        ("http://[::1]:8080", {"ALL_PROXY": "socks5://127.0.0.1:1"}),
        ("https://log.example", {"ALL_PROXY": "socks5://127.0.0.1:1", "NO_PROXY": "log.example"}),
        ("https://log.example", {"ALL_PROXY": "socks5://127.0.0.1:1", "NO_PROXY": ".example,10.0.0.1"}),
        ("https://log.example", {"ALL_PROXY": "socks5://127.0.0.1:1", "NO_PROXY": "*"}),
        ("https://log.example", {"HTTP_PROXY": "socks5://127.0.0.1:1"}),
        ("https://log.example", {"HTTPS_PROXY": "proxy.example:3128"}),
    ],
)
def test_a_proxy_that_the_environment_names_for_other_urls_stops_no_client(environment, url, given):
    environment(**given)
    Client(url).close()


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        ("socks5://me:secret@127.0.0.1:1", "a SOCKS proxy needs the package socksio; run pip install socksio"),
        ("socks5://me:se@cret:1@127.0.0.1:1", "NO_PROXY: proxy=socks5://127.0.0.1:1"),
        ("nonsense://x", "is not a URL such as http://proxy:3128"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_one_clear_error(environment, proxy, expected):
    environment(ALL_PROXY=proxy)
    with pytest.raises(errors.InvalidRequestError) as caught:
        Client("https://log.example")
    assert expected in caught.value.detail
    assert "NO_PROXY" in caught.value.detail
    assert "secret" not in caught.value.detail


@pytest.mark.parametrize("url", ["http://log.example", "https://log.example"])
def test_a_dead_proxy_is_not_blamed_on_the_service(environment, url):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]  # no process listens there in a moment
    environment(ALL_PROXY=f"http://me:secret@127.0.0.1:{port}")
    with Client(url, retry_ms=0) as client, pytest.raises(errors.StoreUnavailableError) as caught:
        client.health()
    assert caught.value.detail.startswith(f"the proxy http://127.0.0.1:{port} let no request through to {url}")
    assert "secret" not in caught.value.detail


def test_a_proxy_that_refuses_the_way_shows_that_nothing_was_carried_out():
    client, _ = client_of(httpx.ProxyError("403 Forbidden"), retry_ms=0)
    with pytest.raises(errors.StoreUnavailableError, match="403 Forbidden"):
        client.produce("t", 0, [Record(b"x")])


def test_a_name_without_an_address_is_reported_soon():
    runtime = AheadRuntime()
    nameless = httpx.ConnectError("[Errno -2] Name or service not known")
    nameless.__cause__ = socket.gaierror(-2, "Name or service not known")
    client, _ = client_of(nameless, runtime=runtime, retry_ms=30_000)

    with pytest.raises(errors.StoreUnavailableError, match="has no address") as caught:
        client.health()

    assert "check the URL" in caught.value.detail
    assert sum(runtime.slept_ms) <= FIRST_CONNECTION_MS


# What a gateway says


@pytest.mark.parametrize(
    ("status", "body", "error", "advice"),
    [
        (403, {"message": "The security token included in the request is expired"}, "NOT_AUTHORIZED", "aws sso login"),
        (403, {"Message": "User: arn:aws:iam::1:user/a is not authorized to perform: execute-api:Invoke on x"},
         "NOT_AUTHORIZED", "let an administrator allow execute-api:Invoke"),
        (403, {"message": "Credential should be scoped to a valid region. "}, "NOT_AUTHORIZED", "FENCELINE_AWS_REGION"),
        (403, {"message": "Missing Authentication Token"}, "NOT_AUTHORIZED", "sign requests"),
        (403, {"message": "Forbidden"}, "NOT_AUTHORIZED", "sign requests"),
        (403, {"message": "The request signature we calculated is another"}, "NOT_AUTHORIZED", "this machine's clock"),
        (429, {"message": "Too Many Requests"}, "THROTTLED", "throttling"),
        (503, {"message": "Service Unavailable"}, "OUTCOME_UNKNOWN", ""),
        (504, {"message": "Endpoint request timed out"}, "OUTCOME_UNKNOWN", ""),
    ],
)  # fmt: skip
def test_a_gateways_message_is_in_the_error_with_the_remedy(status, body, error, advice):
    client, _ = client_of(httpx.Response(status, json=body), retry_ms=0)
    with pytest.raises(errors.TABLE[error]) as caught:
        client.produce("t", 0, [Record(b"x")])
    (said,) = body.values()
    assert said.rstrip(" .") in caught.value.detail
    assert advice in caught.value.detail
    assert f"status={status}" in caught.value.detail


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(503, text="it\r\nis \x1b[31mdown", headers={"content-type": "text/plain"}), "it is [31mdown"),
        (httpx.Response(503, json={"message": "x" * 9_999}), "x" * 500),
        (httpx.Response(503, html="<h1>down</h1>"), "no problem document"),
        (httpx.Response(503, json={"message": 7}), "no problem document"),
        (httpx.Response(503, json=["message"]), "no problem document"),
    ],
)  # fmt: skip
def test_a_gateways_message_is_one_printable_line(answer, said):
    client, _ = client_of(answer, retry_ms=0)
    with pytest.raises(errors.OutcomeUnknownError) as caught:
        client.produce("t", 0, [Record(b"x")])
    assert said in caught.value.detail
    assert len(caught.value.detail) < 700
    assert caught.value.detail.isprintable()


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_no_line_of_any_logger_has_a_session(caplog, level):
    """httpx logs the URL of each request, and a session's id is part of some."""
    caplog.set_level(level)
    session_id = "0123456789abcdef0123456789abcdef"
    client, _ = client_of(httpx.Response(200, json={}))
    for call in (
        lambda: client.heartbeat(session_id),
        lambda: client.close_session(session_id),
        lambda: client.session_state(session_id),
        lambda: client.read("t", 0, offset=0, group="g", session_id=session_id),
        lambda: client.read_batches("t", 0, 0, group="g", session_id=session_id),
        lambda: client.acknowledge("t", "s", 0, cumulative=1, session_id=session_id),
        lambda: client.produce("t", 0, [Record(b"x")], session=SessionRef(session_id, 3)),
        lambda: client.produce_batch("t", 0, b"x", session=SessionRef(session_id, 3)),
    ):
        with contextlib.suppress(errors.FencelineError, KeyError):
            call()
    assert len([one for one in caplog.records if one.name == "httpx"]) >= 8
    assert session_id not in caplog.text
    assert "session_id=01234567…" in caplog.text
    assert "/v1/sessions/01234567…" in caplog.text


def test_a_lost_answer_names_no_session():
    session_id = "0123456789abcdef0123456789abcdef"
    client, _ = client_of(httpx.ReadTimeout("x"), retry_ms=0)
    with pytest.raises(errors.OutcomeUnknownError) as caught:
        client.produce_batch("t", 0, b"x", session=SessionRef(session_id, 3))
    assert session_id not in caught.value.detail
