"""Helpers of the tests of ownership: sessions and their items, claims of resources, appends under a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fenceline import limits
from fenceline.access import session_item
from fenceline.access.resources import OwnershipItem
from fenceline.access.rules import AccessItem, access_from_item
from fenceline.access.session_item import SessionItem, WriteHold, session_from_item
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError
from fenceline.format import control, keys
from fenceline.model.access import Claim
from fenceline.model.record import Record
from fenceline.model.requests import ClaimRequest, OwnTarget, ReadRequest
from fenceline.model.results import Appended, Page, SessionRef
from fenceline.service.log import Log
from tests.support.service import TOPIC, Service, serve
from tests.support.sweeping import Died

WRITE, OTHER = f"{TOPIC}/0", f"{TOPIC}/1"
LEASE_MS = 30_000


def serve_two() -> Service:
    """Return a service in memory whose clocks stand still, with one topic of two partitions."""
    made = serve()
    made.log.topics.create(TOPIC, partitions=2)
    return made


def start(service: Service, *, principal: str = "", lease_ms: int = LEASE_MS) -> str:
    """Create a session, and return its id."""
    runtime = service.runtime
    made = session_item.created(runtime.fresh_id(), principal=principal, lease_ms=lease_ms, now_ms=runtime.now_ms())
    service.items.store.write([made.put(runtime)])
    return made.session_id


def session(service: Service, session_id: str) -> SessionItem:
    key = keys.session_item(session_id)
    return session_from_item(service.items.store.get([key])[key])


def change(service: Service, session_id: str, **fields: Any) -> None:
    """Write some fields of a session, and keep the others."""
    service.items.store.write([replace(session(service, session_id), **fields).put(service.runtime)])


def lapse(service: Service, session_id: str) -> None:
    """End a session's lease, by every process's clock."""
    change(service, session_id, expires_at=service.runtime.now_ms() - limits.LEASE_GRACE_MS - 1)


def close(service: Service, session_id: str) -> None:
    change(service, session_id, state=session_item.CLOSED)


def share(service: Service, session_id: str, partition: int = 0) -> None:
    """Give a session shared access, in the epoch in force."""
    epoch = service.log.partitions.offsets(TOPIC, partition).topic_epoch
    hold = WriteHold(TOPIC, service.topic_id(), partition, epoch, control.SHARED, "p")
    change(service, session_id, holds=(*session(service, session_id).holds, hold))


def access(service: Service, partition: int = 0) -> AccessItem:
    key = keys.access_item(service.topic_id(), partition)
    return access_from_item(service.items.store.get([key]).get(key))


def stored(service: Service, resource: str, group: str | None = None) -> OwnershipItem:
    """Return the item of a lock."""
    key = keys.lock_item(group, resource)
    found = service.items.store.get([key]).get(key)
    return OwnershipItem() if found is None else OwnershipItem.from_value(found.value)


def everything(service: Service) -> dict[Any, Any]:
    """Return all sessions, ownerships and access that are stored, with their versions."""
    topic_id = service.topic_id()
    places = ["own", "own/g", *(keys.sessions_of(shard) for shard in keys.SESSION_SHARDS)]
    places += [keys.partition_items(topic_id, partition) for partition in (0, 1)]
    items = [item for place in places for item in service.items.store.query(place)]
    return {item.key: (item.version, item.value) for item in items if item.key.sort != "head"}


def wanted(*resources: str | tuple[str, int | None]) -> Sequence[OwnTarget]:
    return [OwnTarget(one) if isinstance(one, str) else OwnTarget(*one) for one in resources]


def own(log: Log, session_id: str, *resources: str | tuple[str, int | None], **options: Any) -> list[tuple[int, int]]:
    """Own resources, and return (generation, token) of each."""
    owned = log.access.own(session_id, wanted(*resources), **options)
    assert [one.resource for one in owned] == [one.resource for one in wanted(*resources)]
    return [(one.generation, one.fencing_token) for one in owned]


def refusal(log: Log, session_id: str, *resources: str | tuple[str, int | None], **options: Any) -> FencelineError:
    try:
        log.access.own(session_id, wanted(*resources), **options)
    except FencelineError as error:
        return error
    raise AssertionError("it was granted")


def send(log: Log, session_id: str, epoch: int, value: str = "v", partition: int = 0) -> Appended:
    """Append under a session."""
    request = AppendRequest.of_records([Record(value.encode())], session=SessionRef(session_id, epoch))
    answer = log.append(TOPIC, partition, request)
    assert answer is not None
    return answer


def sent(log: Log, session_id: str, epoch: int, value: str = "v", partition: int = 0) -> str:
    """Append under a session, and return what becomes of it: "ok", or the refusal's code."""
    try:
        send(log, session_id, epoch, value, partition)
    except FencelineError as error:
        return error.code
    return "ok"


def read(log: Log, session_id: str | None, group: str | None = "g", partition: int = 0, **options: Any) -> Page:
    """Read a partition from its beginning, as a group and under a session."""
    return log.partitions.read(TOPIC, partition, ReadRequest(offset=0, group=group, session_id=session_id, **options))


def ok_or_code(call: Callable[[], object]) -> str:
    """Return what a call is answered: "ok", or the refusal's code."""
    try:
        call()
    except FencelineError as error:
        return error.code
    return "ok"


def claim(service: Service, mode: str, session_id: str | None = None, *, partition: int = 0) -> Claim:
    """Claim one partition, in a process of its own."""
    return service.another().access.claim(TOPIC, ClaimRequest(mode, [partition], session_id=session_id))


def died(call: Callable[[], Any]) -> Any:
    """End the process in the place of this call."""
    raise Died
