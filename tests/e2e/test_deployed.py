"""Two regions as the real toolkit deploys them to an AWS that checks every signature and every policy.

The tests follow the order in which a region is used: it is deployed, looked at, deployed again, changed, destroyed.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from fenceline import Client, Record, errors, limits
from fenceline.model.results import ProducerRef
from fenceline_http import routes
from fenceline_testing.service import in_memory
from functions.telemetry import metric_names
from tests.e2e.region import REGIONS, Region, Toolkit
from tests.e2e.test_blackbox_transactions import Producer, begun, offsets, values
from tests.e2e.test_blackbox_transactions import eventually as eventually_is
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.deploy


@pytest.fixture(scope="module")
def region(regions: Mapping[str, Region], credentials: None) -> Region:
    return regions[REGIONS[0]]


@pytest.fixture(scope="module")
def client(region: Region) -> Iterator[Client]:
    with region.client() as made:
        yield made


def new_user(region: Region, name: str, *statements: Mapping[str, Any]) -> dict[str, str]:
    """Return the credentials of a new user who may do what ``statements`` say, as environment variables."""
    iam = region.aws_client("iam")
    iam.create_user(UserName=name)
    if statements:
        policy = {"Version": "2012-10-17", "Statement": list(statements)}
        iam.put_user_policy(UserName=name, PolicyName="may", PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}


def calls_of(region: Region, function: str, requests: Sequence[Callable[[], object]]) -> list[dict[str, int]]:
    """Make requests, one after the other; return what each asked of the stores, as the function logged it.

    Another region's replicator, or a request that is sent again, may reach the same function meanwhile, and a line of
    the log does not tell whose it is. All are then made anew, up to five times.
    """

    def logged() -> dict[str, dict[str, int]]:
        return {line["request_id"]: line["calls"] for line in region.lines(function) if "calls" in line}

    def once() -> list[dict[str, int]]:
        before = logged()
        for request in requests:
            request()
        return eventually(lambda: [calls for name, calls in logged().items() if name not in before], len(requests))

    for _ in range(5):
        if len(counts := once()) == len(requests):
            return counts
    return pytest.fail(f"{len(requests)} requests were made, and {len(counts)} reached the function, five times")


def eventually(found: Any, wanted: int) -> list[Any]:
    """Return what ``found`` finds as soon as it is that many: logs arrive a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    while len(some := found()) < wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return list(some)


# Which requests get in


def test_a_request_without_a_signature_is_not_let_in(region: Region) -> None:
    with region.client(is_signed=False) as stranger, pytest.raises(errors.NotAuthorizedError):
        stranger.topics().__next__()
    with region.http() as bare:
        for route in routes.ROUTES:
            answer = bare.request(route.method, route.path.replace("{", "").replace("}", ""))
            assert answer.status_code == 403, route
            assert "code" not in answer.json(), route  # the gateway's own body


def test_a_user_without_invoke_is_not_authorized(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in new_user(region, "nobody").items():
        monkeypatch.setenv(name, value)
    with region.client() as nobody, pytest.raises(errors.NotAuthorizedError):
        nobody.health()


def test_a_user_with_invoke_needs_no_permission_for_the_stores(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    may = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": "*"}
    for name, value in new_user(region, "caller", may).items():
        monkeypatch.setenv(name, value)
    with region.client() as caller:
        caller.create_topic("of-a-caller")
        assert caller.produce("of-a-caller", 0, [Record(b"v")]).base_offset == 0
    session = botocore.session.get_session()
    s3 = session.create_client(
        "s3", region_name=region.name, endpoint_url=region.aws.url, verify=str(region.aws.certificate)
    )
    with pytest.raises(ClientError, match="AccessDenied"):
        s3.list_objects_v2(Bucket=region.bucket)


def test_an_unknown_path_is_answered_in_the_documented_form(client: Client) -> None:
    with pytest.raises(errors.NotFoundError, match="no such path"):
        client._call("GET", "/v2/nothing", "none")


def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    client.create_topic("large", config={"max.message.bytes": limits.MESSAGE_BYTES_MAX})
    with pytest.raises(errors.RecordListTooLargeError):
        client.produce_batch("large", 0, bytes(limits.BODY_BYTES_MAX + 1))
    largest = [Record(bytes(limits.MESSAGE_BYTES_MAX - 1_000))]
    assert client.produce("large", 0, largest).count == 1
    assert client.read("large", 0, offset=0, max_bytes=limits.BYTES_MAX).records[0].value == largest[0].value


# What the bucket refuses, also to an administrator


@pytest.fixture(scope="module")
def administrator(region: Region) -> Any:
    """Return an S3 client of a user who may do everything."""
    may = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    keys = new_user(region, "administrator", may)
    return region.aws_client(
        "s3",
        aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
    )


@pytest.mark.parametrize("prefix", ["log", "state", "topic", "compacted"])
def test_the_bucket_takes_no_object_that_might_overwrite_another(
    region: Region, administrator: Any, prefix: str
) -> None:
    key = f"{prefix}/made-by-hand"
    with pytest.raises(ClientError, match="AccessDenied"):
        administrator.put_object(Bucket=region.bucket, Key=key, Body=b"x")
    administrator.put_object(Bucket=region.bucket, Key=key, Body=b"x", IfNoneMatch="*")
    with pytest.raises(ClientError, match="AccessDenied"):
        administrator.delete_object(Bucket=region.bucket, Key=key)


# What the functions do there


def test_regions_share_nothing(regions: Mapping[str, Region], client: Client) -> None:
    client.create_topic("only-here")
    with regions[REGIONS[1]].client() as other:
        assert other.health()["region"] == REGIONS[1]
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            other.topic("only-here")
        other.create_topic("only-here")


def test_a_warm_append_through_the_api_is_one_create(region: Region, client: Client) -> None:
    client.create_topic("counted")
    producer_id, epoch = client.producer_id()
    appends = 2 * limits.CHECKPOINT_SEGMENTS
    sequence = itertools.count()

    def append() -> None:
        client.produce("counted", 0, [Record(b"v")], producer=ProducerRef(producer_id, epoch, next(sequence)))

    began = time.monotonic()
    counts = calls_of(region, "produce", [append] * appends)
    by_time = (time.monotonic() - began) * 1000 // limits.CHECKPOINT_MS  # checkpoints that were due by the clock
    assert sum(calls["objects.create"] for calls in counts) == appends
    assert sum(calls.get("items.write", 0) for calls in counts[1:]) <= 0.2 * appends + by_time
    assert sum(1 for calls in counts if calls == {"objects.create": 1}) >= appends - 4 - by_time


@pytest.mark.parametrize("kind", ["append", "duplicate", "refusal", "read", "offsets", "segments"])
def test_requests_through_the_api_ask_the_stores_as_the_library_does(region: Region, client: Client, kind: str) -> None:
    def request(client: Client, topic: str) -> object:
        match kind:
            case "append":
                return client.produce(topic, 0, [Record(b"v")])
            case "duplicate":
                return client.produce(topic, 0, [Record(b"v")], producer=ProducerRef(1, 0, 0))
            case "refusal":
                with pytest.raises(errors.OffsetMismatchError):
                    client.produce(topic, 0, [Record(b"v")], expected_offset=99)
                return None
            case "read":
                return client.read(topic, 0, offset=0)
            case "offsets":
                return client.offsets(topic, 0)
        return client.segments(topic, 0)

    function = "produce" if kind in ("append", "duplicate", "refusal") else "read"
    topic = f"asked-by-{kind}"
    # A process that does not know the partition yet looks for more.
    tries = 8
    with in_memory(item_age_ms=limits.ITEM_AGE_MS_MAX) as lent:
        assert lent.service.meter is not None
        for made in (client, lent.client):
            made.create_topic(topic)
            made.produce(topic, 0, [Record(b"v")], producer=ProducerRef(1, 0, 0))
        for _ in range(2):
            lent.service.meter.take()
            request(lent.client, topic)
        library = dict(lent.service.meter.take().calls)
    counts = calls_of(region, function, [lambda: request(client, topic)] * tries)
    assert library in counts
    assert sum(library.values()) <= min(sum(calls.values()) for calls in counts)


def test_a_transaction_whose_producer_is_gone_is_ended_by_the_function_that_reads(
    region: Region, client: Client
) -> None:
    """Its role may write the markers in both partitions, and what becomes of the transaction and of its offsets."""
    for name in ("left-0", "left-1"):
        client.create_topic(name)
    client.produce("left-1", 0, [Record(b"v")])

    def begin(producer: Producer) -> None:
        producer.add_group("left")
        producer.post("offsets", group="left", offsets=[{"topic": "left-1", "partition": 0, "offset": 1}])
        for name in ("left-0", "left-1"):
            producer.produce(name, "lost")

    producer = begun(client, begin)
    client.produce("left-0", 0, [Record(b"after")])
    assert eventually_is(lambda: values(client, "left-0"), ["after"]) == ["after"]
    assert values(client, "left-1") == ["v"]
    assert offsets(client, "left", require_stable=True) == []
    with pytest.raises(errors.ProducerFencedError):
        producer.end("commit")

    def markers() -> list[dict[str, Any]]:
        return [line for line in region.lines("read") if line.get("calls", {}).get("objects.create", 0) >= 2]

    assert eventually(markers, 1)


def test_metrics_are_logged_and_no_key_or_value_is(region: Region, client: Client) -> None:
    client.create_topic("secrets")
    secret = "hunter2-and-more"
    record = Record(secret.encode(), key=secret.encode(), headers=[(secret, secret.encode())])
    client.produce("secrets", 0, [record])
    client.read("secrets", 0, offset=0)
    for body in ({"records": [{"value": secret, secret: secret}]}, {"records": [{"value": [secret]}]}):
        with pytest.raises(errors.InvalidRequestError):
            client._call("POST", "/v1/topics/secrets/partitions/0/records", "once", body=body)

    def lines() -> list[dict[str, Any]]:
        return [line for function in ("produce", "read", "admin") for line in region.lines(function)]

    emitted = eventually(lambda: [line for line in lines() if metric_names.APPEND_MS in line], 1)
    assert {"service", metric_names.CREATES, metric_names.CHECKPOINT_AGE} <= set().union(*emitted)
    assert eventually(lambda: [line for line in lines() if line.get("codes") == {"INVALID_REQUEST": 1}], 1)
    assert secret not in json.dumps(lines())


def test_the_sweeper_and_the_compactor_run_within_their_leave(region: Region, client: Client) -> None:
    client.create_topic("swept", config={"cleanup.policy": "compact", "retention.ms": 1})
    for value in (b"old", b"new"):
        client.produce("swept", 0, [Record(value, key=b"k")])
    client.trim("swept", 0, 1)
    lambdas = region.aws_client("lambda")
    names = [one["FunctionName"] for one in lambdas.list_functions()["Functions"] if region.name in one["FunctionName"]]
    [sweeper] = [name for name in names if "Sweeper" in name]
    [compactor] = [name for name in names if "Compactor" in name]
    swept = lambdas.invoke(FunctionName=sweeper, Payload=json.dumps({"is_thorough": True}))
    report = json.loads(swept["Payload"].read())
    assert "FunctionError" not in swept, report
    assert (report["is_whole"], report["problems"]) == (True, [])
    compacted = lambdas.invoke(FunctionName=compactor, Payload=json.dumps({"topic": "swept", "partition": 0}))
    answer = json.loads(compacted["Payload"].read())
    assert "FunctionError" not in compacted, answer
    assert answer["compacted"] == [{"topic": "swept", "partition": 0, "compaction_horizon": 2}]


def test_an_undocumented_error_is_answered_without_its_text(region: Region) -> None:
    lambdas = region.aws_client("lambda")
    names = [one["FunctionName"] for one in lambdas.list_functions()["Functions"] if region.name in one["FunctionName"]]
    [compactor] = [name for name in names if "Compactor" in name]
    failed = lambdas.invoke(FunctionName=compactor, Payload=json.dumps({"topic": ["hunter3"], "partition": 0}))
    answer = json.loads(failed["Payload"].read())
    assert failed["FunctionError"]
    assert "hunter3" not in json.dumps(answer)


def test_the_command_line_signs_when_it_is_given_a_region(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    from fenceline_cli import options
    from fenceline_cli.main import app

    seen: list[str | None] = []

    def connect(url: str, **named: Any) -> Client:
        seen.append(named["region"])
        return region.client(is_signed=named["region"] is not None)

    monkeypatch.setattr(options, "Client", connect)
    signed = CliRunner().invoke(app, ["--region", region.name, "topic", "list", "--url", region.url])
    assert (signed.exit_code, seen) == (0, [region.name]), signed.output
    unsigned = CliRunner().invoke(app, ["topic", "list", "--url", region.url])
    assert unsigned.exit_code == 1
    assert "NOT_AUTHORIZED" in unsigned.stderr


# Deployed again


def test_the_same_source_deployed_again_changes_nothing(toolkit: Toolkit, regions: Mapping[str, Region]) -> None:
    before = {name: toolkit.template(f"Fenceline-{name}") for name in REGIONS}
    toolkit.synth()
    assert {name: toolkit.template(f"Fenceline-{name}") for name in REGIONS} == before
    said, _ = toolkit.deploy()
    assert said.count("(no changes)") == len(REGIONS)


def test_a_changed_setting_updates_in_place(toolkit: Toolkit, region: Region, client: Client) -> None:
    client.create_topic("before-the-change")
    client.produce("before-the-change", 0, [Record(b"kept")])

    def resources() -> dict[str, str]:
        found = region.aws_client("cloudformation").describe_stack_resources(StackName=f"Fenceline-{region.name}")
        return {one["LogicalResourceId"]: one["PhysicalResourceId"] for one in found["StackResources"]}

    before = resources()
    toolkit.synth(log_level="INFO", throttle_rate="77")
    _, outputs = toolkit.deploy()
    assert outputs[f"Fenceline-{region.name}"]["Url"] == region.url
    assert resources() == before
    functions = region.aws_client("lambda").list_functions()["Functions"]
    levels = {one["Environment"]["Variables"]["FENCELINE_LOG_LEVEL"] for one in functions}
    assert levels == {"INFO"}
    assert [one.value for one in client.read("before-the-change", 0, offset=0).records] == [b"kept"]


def test_destroying_a_region_keeps_its_bucket_and_its_table(toolkit: Toolkit, region: Region, client: Client) -> None:
    client.create_topic("kept")
    client.produce("kept", 0, [Record(b"kept")])
    toolkit.destroy()
    assert not region.aws_client("lambda").list_functions()["Functions"]
    kept = region.aws_client("s3").list_objects_v2(Bucket=region.bucket, Prefix="log/")["Contents"]
    assert kept
    items = region.aws_client("dynamodb").scan(TableName=region.table)["Items"]
    assert any(item["sk"]["S"] == "kept" for item in items)
