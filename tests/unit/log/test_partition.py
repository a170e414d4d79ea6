"""The table of partitions: one of each in a process, one appender of each, and a bounded number of both."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from weakref import ref

import pytest

from fenceline import limits
from fenceline.log.partition import Partition, Partitions
from fenceline.model.requests import ReadRequest
from tests.support.service import TOPIC, append, partitions_of, serve


class FakeAppender:
    """An appender that appends nothing."""

    def __init__(self, partition: Partition, keep: Callable[[Partition], None]) -> None:
        self.partition = partition
        self.keep = keep
        self.is_idle = True


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Partitions]:
    """Return a table that keeps two partitions at most."""
    monkeypatch.setattr(limits, "PARTITIONS_CACHED_MAX", 2)
    service = serve()
    yield Partitions(service.log.context)
    service.close()


def get(table: Partitions, *numbers: int) -> None:
    for number in numbers:
        table.get(TOPIC, "id", number)


def appender(table: Partitions, number: int = 0) -> FakeAppender:
    return table.appender(TOPIC, "id", number, FakeAppender)


def test_a_read_makes_no_appender() -> None:
    service = serve()
    service.log.topics.create(TOPIC)
    service.log.partitions.read(TOPIC, 0, ReadRequest(offset=0))
    table = partitions_of(service.log)
    assert len(table.kept()) == 1
    assert not table._appenders_in_use
    append(service.log, "a")
    assert len(table._appenders_in_use) == 1
    service.close()


def test_an_appender_is_of_the_partition_that_readers_have(table: Partitions) -> None:
    read = table.get(TOPIC, "id", 0)
    made = appender(table)
    assert made.partition is read
    assert appender(table) is made
    assert table.get(TOPIC, "id", 0) is read


def test_a_dropped_partition_that_a_reader_still_has_is_not_made_twice(table: Partitions) -> None:
    """An append that follows gets the reader's partition, although the table dropped it meanwhile."""
    read = table.get(TOPIC, "id", 0)
    get(table, 1, 2)
    assert read not in table.kept()
    assert appender(table).partition is read


def test_a_dropped_appender_that_a_request_still_has_is_not_made_twice(table: Partitions) -> None:
    made = appender(table)
    get(table, 1, 2)
    assert made.partition not in table.kept()
    assert table.get(TOPIC, "id", 0) is made.partition
    assert appender(table) is made
    get(table, 1, 2)
    assert appender(table) is made


def test_a_dropped_partition_is_freed_at_once(table: Partitions) -> None:
    """No circle of references holds it: the table bounds the memory without a collection of garbage."""
    gc.disable()
    try:
        made = appender(table)
        partition, gone = ref(made.partition), ref(made)
        del made
        get(table, 1, 2)
        assert partition() is None
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("busy", ["appender", "reader", "offer"])
def test_a_partition_that_is_not_idle_is_kept(table: Partitions, busy: str) -> None:
    made = appender(table)
    made.is_idle = busy != "appender"
    made.partition.has_looker = busy == "reader"
    made.partition.awaited = {"offer": None} if busy == "offer" else {}
    get(table, 1, 2, 3)
    assert [partition.partition for partition in table.kept()] == [0, 3]


def test_an_appender_in_which_a_request_is_left_is_kept_again(table: Partitions) -> None:
    made = appender(table)
    get(table, 1, 2)
    made.is_idle = False
    made.keep(made.partition)
    gone = ref(made)
    del made
    get(table, 1, 2)
    assert gone() is not None
    assert appender(table) is gone()


def test_an_ended_incarnation_is_not_kept_again(table: Partitions) -> None:
    made = appender(table)
    table.forget("id", 1)
    made.keep(made.partition)
    assert table.kept() == []
    assert appender(table) is not made
