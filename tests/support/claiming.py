"""Claims and appends under sessions, as tests make them; and items as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from fenceline import errors
from fenceline.access.rules import AccessItem, access_from_item
from fenceline.access.session_item import SessionItem, session_from_item
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import control, keys
from fenceline.format.batch import BatchHeader
from fenceline.model.access import Claim
from fenceline.model.record import Record
from fenceline.model.requests import ClaimRequest
from fenceline.model.results import Appended, SessionRef
from fenceline.service.log import Log
from tests.support.service import TOPIC, Service

SHARED, EXCLUSIVE, WAIT, FENCING = "Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"
MODES = (SHARED, EXCLUSIVE, WAIT, FENCING)
LEASE_MS = 30_000
LAPSE_MS = LEASE_MS + 501  # after this time an unrenewed lease has lapsed


def claim(log: Log, mode: str = EXCLUSIVE, *, topic: str = TOPIC, principal: str = "", **options: Any) -> Claim:
    return log.access.claim(topic, ClaimRequest(mode, **options), principal=principal)


def again(log: Log, producer: Claim, **options: Any) -> Claim:
    """Reconnect: claim in the same session, with the epochs that the producer had."""
    options = {"session_id": producer.session_id, "topic_epochs": producer.topic_epochs, **options}
    return claim(log, producer.access_mode, **options)


def send(log: Log, producer: Claim, value: str, partition: int = 0, *, epoch: int | None = None) -> Appended:
    """Append one record under a producer's session."""
    epoch = producer.topic_epochs[partition] if epoch is None else epoch
    return send_as(log, producer.session_id, epoch, value, partition)


def send_as(
    log: Log, session_id: str, epoch: int, value: str, partition: int = 0, *, principal: str = "", **options: Any
) -> Appended:
    request = AppendRequest.of_records([Record(value.encode())], session=SessionRef(session_id, epoch), **options)
    answer = log.append(TOPIC, partition, request, principal=principal)
    assert answer is not None
    return answer


def refused(call: Callable[[], Any]) -> Any:
    """Return the error that a call ends with."""
    with pytest.raises(errors.FencelineError) as refusal:
        call()
    return refusal.value


def code_of(call: Callable[[], Any]) -> str:
    return str(refused(call).code)


def access_of(service: Service, partition: int = 0) -> AccessItem:
    key = keys.access_item(service.topic_id(), partition)
    return access_from_item(service.items.store.get([key]).get(key))


def session_of(service: Service, session_id: str) -> SessionItem:
    key = keys.session_item(session_id)
    return session_from_item(service.items.store.get([key])[key])


def access_markers(service: Service, partition: int = 0) -> list[tuple[int, int, str, str | None]]:
    """Return every ACCESS marker in the log: its offset, epoch, mode and session."""
    return [
        (header.base_offset, header.leader_epoch, value["mode"], value.get("session_id"))
        for header, value in stored_access(service, partition)
    ]


def stored_access(service: Service, partition: int = 0) -> list[tuple[BatchHeader, Mapping[str, Any]]]:
    """Return the header and the value of every ACCESS marker in the log."""
    found = []
    for segment in service.segments(partition=partition):
        for at, header in segment.batches:
            if header.is_control and control.type_of(segment.body, at, header) == control.ACCESS:
                found.append((header, control.parse_marker(segment.body, at, header).value))
    return found


def texts(values: Sequence[bytes | None]) -> list[str]:
    return [value.decode() for value in values if value is not None]
