"""The watch of a subscriber for another reader of its partition."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fenceline.client.reader_watch import ReaderWatch
from fenceline.client.requests.subscriptions import SubscriptionRequests
from fenceline.errors import InvalidRequestError
from fenceline.model.subscription import Acknowledged, OtherReader

EARLY, LATE = OtherReader("host-b", 1), OtherReader("host-b", 2)


class Service:
    """A service whose answers name these readers, one after the other."""

    def __init__(self, *others: OtherReader | None, is_old: bool = False) -> None:
        self.others = list(others)
        self.is_old = is_old
        self.reader_ids: list[str | None] = []

    def acknowledged(self, topic: str, name: str, partition: int, **more: Any) -> Acknowledged:
        self.reader_ids.append(more["reader_id"])
        if self.is_old and more["reader_id"] is not None:
            raise InvalidRequestError("unknown", field="reader_id")
        return Acknowledged(7, self.others.pop(0))


def watch(service: Service, session_id: str | None = None, *, is_shared: bool = False) -> ReaderWatch:
    return ReaderWatch(cast("SubscriptionRequests", service), "orders", "s", "reader", session_id, is_shared=is_shared)


@pytest.mark.parametrize(
    ("others", "warnings"),
    [
        ([None, None], 0),
        ([EARLY, EARLY], 0),  # one that stopped
        ([EARLY, None], 0),
        ([EARLY, LATE], 1),
        ([None, EARLY], 1),
        ([None, EARLY, LATE, None, LATE], 1),
    ],
)
def test_a_warning_comes_once_and_only_of_a_reader_that_goes_on(
    others: list[OtherReader | None], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    watched = watch(Service(*others))
    assert [watched.acknowledge(0, cumulative=n) for n in range(len(others))] == [7] * len(others)
    assert len(caplog.messages) == warnings
    assert all("host-b" in one and "shared=True" in one for one in caplog.messages)


def test_partitions_are_looked_at_apart(caplog: pytest.LogCaptureFixture) -> None:
    watched = watch(Service(None, EARLY))
    watched.acknowledge(0, cumulative=0)
    watched.acknowledge(1, cumulative=0)
    assert caplog.messages == []


def test_a_shared_subscriber_names_itself_and_warns_of_none(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(None, EARLY)
    watched = watch(service, is_shared=True)
    watched.acknowledge(0, individual=[1])
    watched.acknowledge(0, individual=[2])
    assert caplog.messages == []
    assert None not in service.reader_ids
    assert len(set(service.reader_ids)) == 1


def test_an_owner_is_no_second_reader() -> None:
    service = Service(None)
    watch(service, "session").acknowledge(0, cumulative=0)
    assert service.reader_ids == [None]


def test_an_older_service_gets_acknowledgements_without_an_id() -> None:
    service = Service(None, None, is_old=True)
    watched = watch(service)
    assert watched.acknowledge(0, individual=iter([1])) == 7
    assert watched.acknowledge(0, cumulative=1) == 7
    assert service.reader_ids[1:] == [None, None]
