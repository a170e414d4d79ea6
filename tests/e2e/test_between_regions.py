"""Two deployed regions that replicate: by the bucket's events, and by the schedule, each while the other is off.

Rule: the module runs before ``test_deployed``, which destroys the regions. The schedules are off. A test that needs one
calls the replicator with what the schedule sends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from botocore.exceptions import ClientError

from fenceline import Client, Record, errors
from tests.e2e.region import ACCOUNT, REGIONS, Region
from tests.e2e.test_deployed import new_user

pytestmark = pytest.mark.deploy

T = TypeVar("T")

HERE, THERE = REGIONS
PATIENCE_S = 240  # both regions' functions start cold, one process each, on one machine
MINUTE_MS = 60_000


@pytest.fixture(scope="module", autouse=True)
def unscheduled(regions: Mapping[str, Region], credentials: None) -> Iterator[None]:
    """Switch the schedules of the replicators off."""
    for region in regions.values():
        schedule(region, "DISABLED")
    yield
    for region in regions.values():
        schedule(region, "ENABLED")


def schedule(region: Region, state: str) -> None:
    scheduler = region.aws_client("scheduler")
    [name] = [one["Name"] for one in scheduler.list_schedules()["Schedules"] if named(region, one["Name"], "Replicate")]
    found = scheduler.get_schedule(Name=name)
    kept = ("Name", "GroupName", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    scheduler.update_schedule(**{key: found[key] for key in kept if key in found}, State=state)


def named(region: Region, name: str, what: str) -> bool:
    """Return True if a resource of this region's stack has this word in its name."""
    return region.name in name and what in name


def run_schedule(region: Region) -> None:
    """Call the replicator as its schedule does, minute by minute, until five calls have succeeded.

    A call that fails is left to the next one, as on AWS: on a busy machine the emulated queue may answer too late.
    """
    lambdas = region.aws_client("lambda")
    listed = lambdas.list_functions()["Functions"]
    [name] = [one["FunctionName"] for one in listed if named(region, one["FunctionName"], "ReplicatorFunction")]
    minute, failed = 0, list[bytes]()
    while minute - len(failed) < 5:
        payload = json.dumps({"time": f"2026-01-01T00:0{minute}:00Z"})
        answer = lambdas.invoke(FunctionName=name, Payload=payload)
        minute += 1
        if "FunctionError" in answer:
            failed.append(answer["Payload"].read())
        assert len(failed) < 4, failed


@pytest.fixture(scope="module")
def here(regions: Mapping[str, Region], unscheduled: None) -> Iterator[Client]:
    with regions[HERE].client() as made:
        yield made


@pytest.fixture(scope="module")
def there(regions: Mapping[str, Region], unscheduled: None) -> Iterator[Client]:
    with regions[THERE].client() as made:
        yield made


def create(name: str, *clients: Client) -> None:
    for client in clients:
        client.create_topic(name, regions=REGIONS)


def values(client: Client, topic: str) -> list[bytes | None]:
    return [record.value for record in client.read(topic, 0, offset=0).records]


def eventually(found: Callable[[], T], wanted: Callable[[T], bool]) -> T:
    """Return what ``found`` finds as soon as it is what is wanted."""
    deadline = time.monotonic() + PATIENCE_S
    while not wanted(now := found()):
        assert time.monotonic() < deadline, now
        time.sleep(0.2)
    return now


@contextmanager
def without_events(region: Region) -> Iterator[None]:
    """Take the bucket's notification away, and give it back."""
    s3 = region.aws_client("s3")
    kept = s3.get_bucket_notification_configuration(Bucket=region.bucket)["QueueConfigurations"]
    s3.put_bucket_notification_configuration(Bucket=region.bucket, NotificationConfiguration={})
    try:
        yield
    finally:
        s3.put_bucket_notification_configuration(
            Bucket=region.bucket, NotificationConfiguration={"QueueConfigurations": kept}
        )


def test_a_record_arrives_by_the_event_with_the_schedule_off(here: Client, there: Client) -> None:
    """Each way, and back no second time: of its own records a region takes none."""
    create("by-event", here, there)
    here.produce("by-event", 0, [Record(b"from here")])
    eventually(lambda: values(there, "by-event"), [b"from here"].__eq__)
    there.produce("by-event", 0, [Record(b"from there")])
    both = [b"from here", b"from there"]
    assert eventually(lambda: values(here, "by-event"), lambda found: len(found) > 1) == both
    assert values(there, "by-event") == both
    assert [one.problem for one in there.replication("by-event").regions] == [None]


def test_a_record_arrives_by_the_schedule_with_the_event_off(
    regions: Mapping[str, Region], here: Client, there: Client
) -> None:
    create("by-schedule", here, there)
    with without_events(regions[HERE]):
        here.produce("by-schedule", 0, [Record(b"quiet")])
        assert values(there, "by-schedule") == []
        run_schedule(regions[THERE])
        assert eventually(lambda: values(there, "by-schedule"), bool) == [b"quiet"]


@pytest.mark.parametrize("queue", ["pull", "QueuesNews"])
def test_a_poison_message_becomes_a_dead_letter_and_stops_no_other(
    regions: Mapping[str, Region], here: Client, there: Client, queue: str
) -> None:
    region = regions[THERE]
    sqs = region.aws_client("sqs")
    urls = [url for url in sqs.list_queues()["QueueUrls"] if region.name in url]
    [poisoned] = [url for url in urls if queue in url]
    [dead_letters] = [url for url in urls if "QueuesDeadLetters" in url]
    kept = sqs.get_queue_attributes(QueueUrl=poisoned, AttributeNames=["VisibilityTimeout"])["Attributes"]
    # Else each try comes only after minutes.
    sqs.set_queue_attributes(QueueUrl=poisoned, Attributes={"VisibilityTimeout": "1"})
    try:
        sqs.send_message(QueueUrl=poisoned, MessageBody=f"poison for {queue}")
        dead = eventually(lambda: sqs.receive_message(QueueUrl=dead_letters).get("Messages", []), bool)
        assert [one["Body"] for one in dead] == [f"poison for {queue}"]
        sqs.delete_message(QueueUrl=dead_letters, ReceiptHandle=dead[0]["ReceiptHandle"])
    finally:
        sqs.set_queue_attributes(QueueUrl=poisoned, Attributes=kept)
    create(f"beside-{queue}", here, there)
    there.produce(f"beside-{queue}", 0, [Record(b"another")])
    eventually(lambda: values(here, f"beside-{queue}"), [b"another"].__eq__)


def test_a_subscription_fails_over_and_loses_nothing(
    regions: Mapping[str, Region], here: Client, there: Client
) -> None:
    create("failover", here, there)
    here.create_subscription("failover", "billing", initial_position="earliest", replicate_subscription_state=True)
    written = [b"%d" % number for number in range(10)]
    for value in written:
        here.produce("failover", 0, [Record(value)])
    eventually(lambda: values(there, "failover"), written.__eq__)
    run_schedule(regions[HERE])  # a subscription is made known by a tick
    eventually(lambda: subscriptions(there, "failover"), ["billing"].__eq__)
    acknowledged = here.read_subscription("failover", "billing", 0).records
    assert [one.value for one in acknowledged] == written
    here.acknowledge("failover", "billing", 0, cumulative=acknowledged[-1].offset + 1)

    def backlog() -> int:
        run_schedule(regions[HERE])
        [mark] = there.subscription("failover", "billing").partitions
        return mark.backlog

    eventually(backlog, (0).__eq__)
    here.produce("failover", 0, [Record(b"last")])
    eventually(lambda: values(there, "failover"), [*written, b"last"].__eq__)
    found = [one.value for one in there.read_subscription("failover", "billing", 0).records]
    assert found == [b"last"]


def subscriptions(client: Client, topic: str) -> Sequence[str]:
    return [one.name for one in client.subscriptions(topic)]


def test_the_role_for_peers_is_taken_by_no_one_else(
    regions: Mapping[str, Region], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a caller of the same account whose own policies let it take every role."""
    region = regions[HERE]
    may: Mapping[str, Any] = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}
    for name, value in new_user(region, "taker-of-roles", may).items():
        monkeypatch.setenv(name, value)
    role = f"arn:aws:iam::{ACCOUNT}:role/Fenceline-{HERE}-peer"
    with pytest.raises(ClientError, match="AccessDenied"):
        region.aws_client("sts").assume_role(RoleArn=role, RoleSessionName="taker")


def test_a_topic_names_peers_and_no_other_region(here: Client) -> None:
    with pytest.raises(errors.InvalidRequestError):
        here.create_topic("elsewhere", regions=[HERE, "us-west-2"])
