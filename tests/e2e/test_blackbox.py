"""The contract, seen from outside by the Python client: in memory, on moto, on `fenceline dev`, deployed."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import pytest

from fenceline import Client, Record, errors
from fenceline.client.types import Claim, CommittedOffset
from fenceline.format import batch
from fenceline.model.results import Appended, ProducerRef, SessionRef
from tests.e2e.conftest import Service

T = TypeVar("T")

THREADS = 8
POLLS = 6  # more than one, for a slow machine
STARTS_MAX = 3
_names = itertools.count(1)


@pytest.fixture
def client(service: Service) -> Client:
    return service.client


@pytest.fixture
def topic(client: Client) -> Iterator[str]:
    """Make a topic with two partitions."""
    name = f"orders-{next(_names)}"
    client.create_topic(name, partitions=2)
    yield name
    client.delete_topic(name)


def values(client: Client, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in client.read(topic, partition, offset=0).records]


@contextmanager
def clients_of(service: Service, warm: Callable[[Client], object]) -> Iterator[list[Client]]:
    """Lend as many clients as there are threads, which share nothing.

    Args:
        warm: Asks the function that the clients will race for. So many of it are started first, which takes its time.
    """
    with ExitStack() as stack:
        clients = [stack.enter_context(service.another_client()) for _ in range(THREADS)]
        for _ in range(STARTS_MAX):
            if not any(isinstance(one, errors.FencelineError) for one in at_once(clients, warm)):
                break
        yield clients


def at_once(clients: list[Client], call: Callable[[Client], T]) -> list[T | errors.FencelineError]:
    """Let every client make the call at the same moment; return what each was answered, or refused."""
    barrier = threading.Barrier(len(clients))

    def made(client: Client) -> T | errors.FencelineError:
        barrier.wait()
        try:
            return call(client)
        except errors.FencelineError as error:
            return error

    with ThreadPoolExecutor(len(clients)) as pool:
        return list(pool.map(made, clients))


def test_a_service_answers_that_it_is_healthy(client: Client) -> None:
    assert client.health()["status"] == "ok"


def test_a_topic_is_created_once_changed_listed_and_deleted(client: Client) -> None:
    name = f"life-{next(_names)}"
    created = client.create_topic(name, partitions=2, config={"retention.ms": 1_000})
    with pytest.raises(errors.TopicAlreadyExistsError):
        client.create_topic(name)
    assert client.alter_topic(name, partitions=3, config={"retention.ms": None}).partitions == 3
    assert [found.name for found in client.topics(prefix=name)] == [name]
    client.delete_topic(name)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        client.topic(name)
    assert client.create_topic(name).topic_id != created.topic_id
    client.delete_topic(name)


def test_records_come_back_as_they_were_sent_in_one_order(client: Client, topic: str) -> None:
    sent = [Record(b"1", key=b"a", headers=[("h", b"\x00\xff")]), Record(None, key=b"\xfe"), Record(b"", timestamp=77)]
    assert client.produce(topic, 0, sent).base_offset == 0
    found = client.read(topic, 0, offset=0).records
    assert [(one.offset, one.key, one.value) for one in found] == [(0, b"a", b"1"), (1, b"\xfe", None), (2, None, b"")]
    assert found[0].headers == [("h", b"\x00\xff")]
    assert found[2].timestamp == 77


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_binary_batch_is_kept_as_it_was_encoded(client: Client, topic: str, codec: batch.Codec) -> None:
    sent = [Record(b"x" * 1_000, key=b"%d" % number) for number in range(100)]
    encoded = batch.encode(sent, now_ms=1_700_000_000_000, codec=codec)
    client.produce_batch(topic, 0, encoded.body)
    page = client.read_batches(topic, 0, 0)
    # Everything up to the base offset's length and the epoch is stamped by the service, and may differ.
    assert page.body[17:] == encoded.body[17:]


def test_one_of_eight_writers_wins_each_expected_offset(service: Service, topic: str) -> None:
    with clients_of(service, lambda c: c.produce(topic, 1, [Record(b"warm")])) as clients:
        for expected in range(4):
            record = Record(b"%d" % expected)
            answers = at_once(clients, lambda c, e=expected, r=record: c.produce(topic, 0, [r], expected_offset=e))  # type: ignore[misc]
            lost = [one for one in answers if isinstance(one, errors.OffsetMismatchError)]
            assert len([one for one in answers if isinstance(one, Appended)]) == 1
            assert [one.extra["next_offset"] for one in lost] == [expected + 1] * (THREADS - 1)
    assert values(service.client, topic) == [b"0", b"1", b"2", b"3"]


def test_eight_writers_lose_no_record_and_repeat_none(service: Service, topic: str) -> None:
    wanted = [b"%d" % n for n in range(4)]
    with clients_of(service, lambda c: c.produce(topic, 0, [Record(b"warm")])) as clients:
        answers = at_once(clients, lambda c: [c.produce(topic, 1, [Record(one)]).base_offset for one in wanted])
    offsets = [offset for answer in answers if isinstance(answer, list) for offset in answer]
    assert sorted(offsets) == list(range(len(wanted) * THREADS))
    assert Counter(values(service.client, topic, 1)) == dict.fromkeys(wanted, THREADS)


def test_a_batch_that_is_sent_again_is_stored_once(client: Client, topic: str) -> None:
    producer_id, epoch = client.producer_id()
    first = client.produce(topic, 0, [Record(b"once")], producer=ProducerRef(producer_id, epoch, 0))
    again = client.produce(topic, 0, [Record(b"once")], producer=ProducerRef(producer_id, epoch, 0))
    assert (first.duplicate, again.duplicate, again.base_offset) == (False, True, first.base_offset)
    with pytest.raises(errors.OutOfOrderSequenceNumberError):
        client.produce(topic, 0, [Record(b"gap")], producer=ProducerRef(producer_id, epoch, 5))
    assert values(client, topic) == [b"once"]


def test_a_producer_and_a_reader_carry_many_records(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        deliveries = [producer.send(key=b"%d" % n, value=b"%d" % n) for n in range(500)]
    assert all(delivery.result() for delivery in deliveries)
    with client.reader(topic, start="earliest") as reader:
        assert sorted(int(record.value or b"") for _, record in reader) == list(range(500))


def test_a_read_starts_at_an_offset_a_time_or_so_far_before_the_end(client: Client, topic: str) -> None:
    client.produce(topic, 0, [Record(b"%d" % n, timestamp=1_000 + n) for n in range(10)])
    assert [one.value for one in client.read(topic, 0, offset=8).records] == [b"8", b"9"]
    assert [one.value for one in client.read(topic, 0, timestamp=1_009).records] == [b"9"]
    assert [one.value for one in client.read(topic, 0, tail_offset=1).records] == [b"9"]
    assert client.offset_at(topic, 0, 1_004) == (4, 1_004)
    with pytest.raises(errors.OffsetOutOfRangeError) as refused:
        client.read(topic, 0, offset=11)
    assert refused.value.extra.items() >= {"log_start_offset": 0, "next_offset": 10}.items()


def test_a_long_poll_ends_with_the_record_that_comes(service: Service, topic: str) -> None:
    with service.another_client() as reader, ThreadPoolExecutor(1) as pool:
        polls = (reader.read(topic, 0, offset=0, wait_ms=10_000) for _ in range(POLLS))
        coming = pool.submit(next, (page.records for page in polls if page.records))
        service.client.produce(topic, 0, [Record(b"news")])
        assert [record.value for record in coming.result(POLLS * 20)] == [b"news"]


def test_a_segment_is_read_by_its_url_without_credentials(service: Service, topic: str) -> None:
    service.client.produce(topic, 0, [Record(b"by url")])
    [segment] = service.client.segments(topic, 0).segments
    body = service.fetch(segment.url)
    assert len(body) == segment.bytes
    [decoded] = batch.decode(body)
    assert decoded.value == b"by url"


def test_trimmed_records_are_gone_for_every_reader(client: Client, topic: str) -> None:
    client.produce(topic, 0, [Record(b"%d" % n) for n in range(5)])
    assert client.trim(topic, 0, 3) == 3
    with pytest.raises(errors.OffsetOutOfRangeError):
        client.read(topic, 0, offset=0)
    assert [one.value for one in client.read(topic, 0, offset=3).records] == [b"3", b"4"]


def test_a_compacted_view_keeps_the_newest_value_of_each_key(client: Client) -> None:
    name = f"compacted-{next(_names)}"
    client.create_topic(name, config={"cleanup.policy": "compact"})
    for value in (b"old", b"new"):
        client.produce(name, 0, [Record(value, key=b"k")])
    client.compact(name, 0)
    assert client.offsets(name, 0).compaction_horizon == 2
    assert [one.value for one in client.read(name, 0, offset=0, compacted=True).records] == [b"new"]
    client.delete_topic(name)


# Sessions, claims, ownership


def test_a_fenced_producer_writes_nothing_any_more(client: Client, topic: str) -> None:
    first = client.claim(topic, access_mode="Exclusive", partitions=[0])
    held = SessionRef(first.session_id, first.topic_epochs[0])
    client.produce(topic, 0, [Record(b"first")], session=held)
    with pytest.raises(errors.ProducerFencedError):
        client.claim(topic, access_mode="Exclusive", partitions=[0])
    second = client.claim(topic, access_mode="ExclusiveWithFencing", partitions=[0])
    with pytest.raises(errors.ProducerFencedError):
        client.produce(topic, 0, [Record(b"late")], session=held)
    client.produce(topic, 0, [Record(b"second")], session=SessionRef(second.session_id, second.topic_epochs[0]))
    assert values(client, topic) == [b"first", b"second"]
    assert [one.session_id for one in client.producers(topic).granted] == [second.session_id]
    for claim in (first, second):
        client.close_session(claim.session_id)
    assert client.session_state(second.session_id).state == "closed"


def test_one_of_eight_claims_is_granted_and_the_next_in_line_follows(service: Service, topic: str) -> None:
    with clients_of(service, lambda c: c.producers(topic)) as clients:
        answers = at_once(clients, lambda c: c.claim(topic, access_mode="WaitForExclusive", partitions=[0]))
        claims = [one for one in answers if isinstance(one, Claim)]
        [holder] = [one for one in claims if one.is_granted]
        queue = sorted((one.queue_position, one.producer_name) for one in claims if one.queue_position is not None)
        assert [position for position, _ in queue] == list(range(THREADS - 1))
        [next_in_line] = [one for one in claims if one.producer_name == queue[0][1]]
        service.client.close_session(holder.session_id)
        name, session_id = next_in_line.producer_name, next_in_line.session_id
        for _ in range(POLLS):
            found = service.client.producer_state(topic, name, session_id=session_id, wait_ms=10_000)
            if found.is_granted:
                break
    assert found.is_granted
    assert found.topic_epochs[0] == holder.topic_epochs[0] + 1


def test_a_newer_generation_severs_the_owner_and_fences_what_it_writes(client: Client, topic: str) -> None:
    zombie, owner = client.create_session(lease_ms=60_000), client.create_session(lease_ms=60_000)
    resource = f"{topic}/0"
    [held] = client.take(zombie.session_id, {resource: 1})
    client.produce(topic, 0, [Record(b"owned")], session=SessionRef(zombie.session_id, held.fencing_token))
    [taken] = client.take(owner.session_id, {resource: 2})
    assert taken.fencing_token > held.fencing_token
    with pytest.raises((errors.SessionSeveredError, errors.ProducerFencedError)):
        client.produce(topic, 0, [Record(b"late")], session=SessionRef(zombie.session_id, held.fencing_token))
    with pytest.raises(errors.StaleGenerationError):
        client.take(client.create_session().session_id, {resource: 1})
    assert client.session_state(zombie.session_id).state == "severed"
    assert client.ownership(resource).session_id == owner.session_id
    assert values(client, topic) == [b"owned"]


# Subscriptions


def test_a_subscription_gives_what_is_not_acknowledged(client: Client, topic: str) -> None:
    client.create_subscription(topic, "readers", initial_position="earliest")
    client.produce(topic, 0, [Record(b"%d" % n) for n in range(5)])
    assert client.acknowledge(topic, "readers", 0, cumulative=1) == 2
    assert client.acknowledge(topic, "readers", 0, individual=[3]) == 2
    left = client.read_subscription(topic, "readers", 0).records
    assert [record.value for record in left] == [b"2", b"4"]
    assert client.seek(topic, "readers", 0, offset=0) == 0
    assert client.subscription(topic, "readers").partitions[0].backlog == 5
    client.delete_subscription(topic, "readers")


def test_a_group_commits_and_asks_for_its_offsets(client: Client, topic: str) -> None:
    client.produce(topic, 0, [Record(b"read")])
    client.commit_offsets("group", [CommittedOffset(topic, 0, 1, "why")])
    assert list(client.committed_offsets("group", topic=topic)) == [CommittedOffset(topic, 0, 1, "why")]


def test_an_owner_reads_and_commits_as_its_group_and_its_reading_keeps_its_lease(client: Client, topic: str) -> None:
    client.create_subscription(topic, "owned", initial_position="earliest")
    client.produce(topic, 0, [Record(b"a"), Record(b"b")])
    other = client.create_session()
    # A slow machine's lease may be over before it is renewed.
    for lease_ms in (3_000, 12_000, 48_000):
        owner = client.create_session(lease_ms=lease_ms)
        client.take(owner.session_id, {f"{topic}/0": None}, group="owned")
        with pytest.raises(errors.OwnerFencedError):
            client.read_subscription(topic, "owned", 0, session_id=other.session_id)
        before = client.session_state(owner.session_id).expires_at
        time.sleep(lease_ms * 0.4 / 1000)  # more than a third of the lease
        if client.session_state(owner.session_id).state == "live":
            break
    params = {"offset": 0, "group": "owned", "session_id": owner.session_id}
    page = client._call("GET", f"/v1/topics/{topic}/partitions/0/records", "none", params=params)
    assert [record["value"] for record in page["records"]] == ["a", "b"]
    assert client.session_state(owner.session_id).expires_at > before
    assert client.acknowledge(topic, "owned", 0, cumulative=0, session_id=owner.session_id) == 1
