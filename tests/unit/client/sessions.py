"""Sessions and producers of clients whose time the test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.patience import wait_until
from tests.support.wire import Wire

KEYS = [b"%d" % n for n in range(400)]  # among 40 partitions each has some


def until(holder: Any, condition: Callable[[], object]) -> None:
    """Let time pass for the client, in steps shorter than its heartbeats' pauses, until the condition holds."""
    clock = getattr(holder, "session", holder)._runtime
    wait_until(lambda: condition() or clock.pass_ms(1_000))


def closed(service: Wire) -> list[str]:
    """Return the sessions that were closed, in order."""
    return [one.names["session_id"] for one in service.requests("closeSession")]


def partitions_of_keys(producer: Any) -> set[int]:
    """Return the partitions that a producer's keys go to, by sending a record of each."""
    sent = [producer.send(key=key, value=b"of its key") for key in KEYS]
    producer.flush()
    return {delivery.result(0).partition for delivery in sent}
