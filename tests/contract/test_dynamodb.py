"""What the DynamoDB adapter promises beyond the port: what each failure becomes, sizes, settings that can't work."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import botocore.session
import pytest

from fenceline import limits
from fenceline.adapters.aws import client as aws_client
from fenceline.adapters.aws import dynamodb
from fenceline.adapters.aws.dynamodb import DynamoItemStore, dynamodb_client
from fenceline.backoff import Backoff
from fenceline.format.item_size import size_of
from fenceline.ports import (
    Check,
    Delete,
    Item,
    ItemKey,
    ItemTooLarge,
    NoAnswer,
    Put,
    StoreFact,
    Unavailable,
    VersionMoved,
    WriteTooLarge,
)
from tests.contract.stores import ITEM_STORES, OpenItems
from tests.servers.faulty import DROP, SILENCE, Faulty, answer, answer_ms, faulty_server, nobody_accepts, nobody_listens
from tests.servers.run import CREDENTIALS, REGION
from tests.support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow  # each test has a server of its own, which fails as it says

A, B, C = (ItemKey("p", sort) for sort in "abc")
LONG_MS = PATIENCE_S * 1000
PUT = Put(A, {"n": 1}, 2, expected=1)
WRITES = {
    "put": [PUT],
    "delete": [Delete(A, 1)],
    "check": [Check(A, 1)],
    "several": [Put(B, {}, 1, None), PUT, Delete(C, 1)],
}


def json_answer(body: Mapping[str, Any]) -> bytes:
    return answer(200, json.dumps(body).encode())


def refusal(code: str, status: int = 400, **more: Any) -> bytes:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "said so", **more}
    return answer(status, json.dumps(body).encode())


def canceled(*reasons: str) -> bytes:
    return refusal("TransactionCanceledException", CancellationReasons=[{"Code": reason} for reason in reasons])


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(aws_client, "BACKOFF", Backoff(1, 1_000))


@pytest.fixture
def faulty() -> Iterator[Faulty]:
    with faulty_server() as server:
        yield server


def store_at(url: str, *, connect_ms: int = LONG_MS, answer_ms: int = LONG_MS) -> DynamoItemStore:
    client = dynamodb_client(endpoint_url=url, region=REGION, connect_ms=connect_ms, answer_ms=answer_ms)
    return DynamoItemStore("table", client=client)


@pytest.fixture
def store(faulty: Faulty, request: pytest.FixtureRequest) -> Iterator[DynamoItemStore]:
    made = store_at(faulty.url, answer_ms=answer_ms(request))
    yield made
    made.close()


EVERY = [name for name in ITEM_STORES if name.startswith("dynamodb")]
EXACT = [name for name in EVERY if name != "dynamodb-moto"]  # without moto, which counts another way
on_every_dynamodb = pytest.mark.parametrize("items", EVERY, indirect=True)
on_exact_dynamodb = pytest.mark.parametrize("items", EXACT, indirect=True)


@pytest.fixture
def dynamo(items: OpenItems) -> DynamoItemStore:
    assert isinstance(items, DynamoItemStore)
    return items


# Writes


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("trouble", "fact"),
    [
        (DROP, NoAnswer),
        (SILENCE, NoAnswer),
        (b"garbage\r\n\r\n", NoAnswer),
        (answer(500, b"<html>"), NoAnswer),
        (refusal("InternalServerError", 500), NoAnswer),
        (refusal("ServiceUnavailable", 503), NoAnswer),
        (refusal("ThrottlingException", 503), NoAnswer),
        (refusal("TransactionInProgressException"), NoAnswer),
        (refusal("ProvisionedThroughputExceededException"), Unavailable),
        (refusal("ThrottlingException"), Unavailable),
        (refusal("RequestLimitExceeded"), Unavailable),
        (refusal("TransactionConflictException"), Unavailable),
        (refusal("AccessDeniedException"), Unavailable),
        (refusal("UnrecognizedClientException"), Unavailable),
        (refusal("ResourceNotFoundException"), Unavailable),
        (refusal("ValidationException"), Unavailable),
    ],
    ids=lambda value: value[-60:] if isinstance(value, bytes) else None,
)
def test_a_write_is_sent_once_and_its_answer_raised(
    faulty: Faulty, store: DynamoItemStore, write: str, trouble: Any, fact: type[StoreFact]
) -> None:
    faulty.answers = [trouble]
    with pytest.raises(StoreFact) as raised:
        store.write(WRITES[write])
    assert type(raised.value) is fact
    wait_until(lambda: faulty.requests)
    assert len(faulty.requests) == 1


def test_a_condition_that_did_not_hold_names_its_item(faulty: Faulty, store: DynamoItemStore) -> None:
    faulty.answers = [refusal("ConditionalCheckFailedException")]
    for write in ("put", "delete"):
        with pytest.raises(VersionMoved) as moved:
            store.write(WRITES[write])
        assert moved.value.key == A
    for reasons, key in (
        (("None", "ConditionalCheckFailed", "None"), A),
        (("None", "None", "ConditionalCheckFailed"), C),
        (("TransactionConflict", "ConditionalCheckFailed", "None"), A),
    ):
        faulty.answers = [canceled(*reasons)]
        with pytest.raises(VersionMoved) as moved:
            store.write(WRITES["several"])
        assert moved.value.key == key


@pytest.mark.parametrize("reason", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_transaction_canceled_for_anything_else_says_nothing_of_versions(
    faulty: Faulty, store: DynamoItemStore, reason: str
) -> None:
    faulty.answers = [canceled("None", reason, "None")]
    with pytest.raises(Unavailable):
        store.write(WRITES["several"])


def test_a_write_that_never_left_is_unavailable_and_names_what_to_do() -> None:
    with nobody_listens() as refused, nobody_accepts() as full:
        for url in (refused, full, "http://store.invalid"):
            with pytest.raises(Unavailable, match="can't be reached; check that it runs"):
                store_at(url, connect_ms=300).write([PUT])


def test_a_client_that_repeats_requests_is_refused() -> None:
    client = botocore.session.get_session().create_client("dynamodb", region_name=REGION)
    with pytest.raises(ValueError, match="must not repeat"):
        DynamoItemStore("table", client=client)


# Reads


ROW = {"pk": {"S": "p"}, "sk": {"S": "a"}, "version": {"N": "7"}, "value": {"M": {"n": {"N": "9007199254740993"}}}}
ITEM = Item(A, 7, {"n": 9007199254740993})
PAGES = {
    "one": json_answer({"Item": ROW}),
    "two": json_answer({"Responses": {"table": [ROW]}}),
    "query": json_answer({"Items": [ROW]}),
}
READS = {
    "one": lambda store: store.get([A]),
    "two": lambda store: store.get([A, B]),
    "query": lambda store: store.query("p"),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    "trouble",
    [
        DROP,
        SILENCE,
        refusal("InternalServerError", 500),
        refusal("ProvisionedThroughputExceededException"),
    ],
    ids=repr,
)
def test_reads_are_repeated_and_consistent(faulty: Faulty, store: DynamoItemStore, read: str, trouble: Any) -> None:
    faulty.answers = [trouble, trouble, PAGES[read]]
    assert READS[read](store) in ({A: ITEM}, [ITEM])
    assert len(faulty.requests) == 3
    for request in faulty.requests:
        asked = json.loads(request.body)
        assert asked.get("RequestItems", {}).get("table", asked)["ConsistentRead"] is True


@pytest.mark.parametrize("read", READS)
def test_reads_that_fail_for_good_are_unavailable(faulty: Faulty, store: DynamoItemStore, read: str) -> None:
    for trouble, requests in ((DROP, aws_client.REPEATABLE_ATTEMPTS_MAX), (refusal("AccessDeniedException"), 1)):
        faulty.requests.clear()
        faulty.answers = [trouble]
        with pytest.raises(Unavailable):
            READS[read](store)
        assert len(faulty.requests) == requests


def test_keys_that_were_left_out_of_an_answer_are_asked_for_again(faulty: Faulty, store: DynamoItemStore) -> None:
    left = {"table": {"Keys": [{"pk": {"S": "p"}, "sk": {"S": "a"}}], "ConsistentRead": True}}
    nothing = json_answer({"Responses": {}, "UnprocessedKeys": left})
    faulty.answers = [nothing, nothing, json_answer({"Responses": {"table": [ROW]}, "UnprocessedKeys": {}})]
    assert store.get([A, B]) == {A: ITEM}
    assert json.loads(faulty.requests[2].body)["RequestItems"] == left


def test_keys_that_are_left_out_for_good_are_unavailable_and_not_absent(faulty: Faulty, store: DynamoItemStore) -> None:
    left = {"table": {"Keys": [{"pk": {"S": "p"}, "sk": {"S": "a"}}], "ConsistentRead": True}}
    faulty.answers = [
        json_answer({"Responses": {"table": [ROW]}, "UnprocessedKeys": left}),
        json_answer({"UnprocessedKeys": left, "Responses": {}}),
    ]
    with pytest.raises(Unavailable, match="fewer requests"):
        store.get([A, B])


# Sizes


def filled(size: int) -> Put:
    """Return a change whose item counts ``size`` bytes."""
    value: dict[str, Any] = {"n": 2**70, "l": [1, "x", None, True, {"a": b"b"}], "s": ""}
    return Put(A, {**value, "s": "x" * (size - size_of(A, value))}, 2**62, None)


@on_exact_dynamodb
def test_an_item_up_to_the_limit_is_taken(dynamo: DynamoItemStore) -> None:
    largest = filled(limits.ITEM_BYTES_MAX)
    dynamo.write([largest])
    assert dynamo.get([A])[A].value == largest.value


def test_an_item_beyond_the_limit_is_not_sent(faulty: Faulty, store: DynamoItemStore) -> None:
    with pytest.raises(ItemTooLarge, match="size=409601 bytes_max=409600"):
        store.write([filled(limits.ITEM_BYTES_MAX + 1)])
    large = [Put(ItemKey("p", str(n)), {"b": b"x" * 400_000}, 1, None) for n in range(11)]
    with pytest.raises(WriteTooLarge, match="together"):
        store.write(large)
    assert not faulty.requests


@on_every_dynamodb
def test_an_item_that_the_store_finds_too_large_is_item_too_large(
    dynamo: DynamoItemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our count is the larger one, but not by much."""
    monkeypatch.setattr(dynamodb, "_check_sizes", lambda changes: None)
    too_large = filled(limits.ITEM_BYTES_MAX + 200)
    for changes in ([too_large], [Put(B, {}, 1, None), too_large]):
        with pytest.raises(ItemTooLarge):
            dynamo.write(changes)
    assert dynamo.get([A, B]) == {}


def test_text_that_is_no_item_value_is_refused(store: DynamoItemStore, faulty: Faulty) -> None:
    with pytest.raises(TypeError):
        store.write([Put(A, {"a": 1.5}, 1, None)])  # type: ignore[dict-item]
    assert not faulty.requests


# Settings


@on_every_dynamodb
def test_a_table_is_created_once_and_its_absence_reported_at_start(dynamo: DynamoItemStore) -> None:
    dynamo.check()
    other = DynamoItemStore("fenceline-none", client=dynamo._client)
    with pytest.raises(Unavailable, match="there is no such table; create it, or name another: table=fenceline-none"):
        other.check()
    with pytest.raises(Unavailable, match="no such table"):
        other.get([A])
    dynamo.write([Put(A, {}, 1, None)])
    dynamo.create_table()
    assert A in dynamo.get([A])


@on_every_dynamodb
def test_another_programs_table_is_reported_at_start(dynamo: DynamoItemStore) -> None:
    client, name = dynamo._client, f"other-{uuid.uuid4().hex}"
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(Unavailable, match=f"belongs to another program; name another table: table={name}"):
        DynamoItemStore(name, client=client).check()


@pytest.mark.parametrize(
    ("code", "advice"),
    [("AccessDeniedException", "grant it"), ("UnrecognizedClientException", "credentials are not accepted")],
)
def test_unusable_credentials_are_reported_at_start(
    faulty: Faulty, store: DynamoItemStore, code: str, advice: str
) -> None:
    faulty.answers = [refusal(code)]
    with pytest.raises(Unavailable, match=advice) as raised:
        store.check()
    assert "\n" not in str(raised.value)


def test_a_region_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(Unavailable, match="no AWS region; set AWS_REGION"):
        dynamodb_client()
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert dynamodb_client().meta.region_name == "eu-west-1"
