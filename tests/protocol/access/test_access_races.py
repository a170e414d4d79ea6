"""Races about access that depend on one moment: each is forced, call by call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline.errors import ContendedError, OutcomeUnknownError, ProducerBusyError, ProducerFencedError
from fenceline.log.retry import ATTEMPTS_MAX
from fenceline.model.requests import ClaimRequest
from tests.support.runtime import FakeRuntime
from tests.support.service import TOPIC, append, loses_answer, moves, serve


def arrives(call: Callable[[], Any]) -> Any:
    return call()


def test_no_session_resumes_after_a_concurrent_end_by_any_clock() -> None:
    """A reconnection that changes nothing does not pass beside the write that ends the session.

    Protocol, "The end of an exclusive session".
    """
    service = serve()
    service.log.topics.create(TOPIC)
    held = service.log.access.claim(TOPIC, ClaimRequest("Exclusive", lease_ms=30_000))
    ahead = FakeRuntime()
    ahead.advance(service.runtime.now_ms() - ahead.now_ms() + 40_000)
    other = service.another(runtime=ahead)
    came: list[str] = []

    def append_without_a_session(operation: str, key: str) -> None:
        if operation == "write" and not came:
            came.append(key)
            append(other, "between")

    service.items.on_call = append_without_a_session
    again = ClaimRequest("Exclusive", session_id=held.session_id, topic_epochs=held.topic_epochs)
    with pytest.raises(ProducerFencedError):
        service.log.access.claim(TOPIC, again)
    assert came
    service.close()


def test_a_session_known_from_old_memory_only_blocks_no_append() -> None:
    """A claim took the log over and was given up. A process that remembers the session before it looks again (I4)."""
    service = serve()
    service.log.topics.create(TOPIC)
    service.log.access.claim(TOPIC, ClaimRequest("Exclusive", lease_ms=300_000))
    other = service.another()
    with pytest.raises(ProducerBusyError):
        append(other, "too early")
    service.items.plan("write", arrives, *[moves] * ATTEMPTS_MAX)  # the reservation; never the confirmation
    with pytest.raises(ContendedError):
        service.log.access.claim(TOPIC, ClaimRequest("ExclusiveWithFencing", lease_ms=300_000))
    assert append(other, "now").base_offset == 2  # after both markers
    service.close()


def test_a_claim_that_may_have_reserved_something_is_not_refused_for_sure() -> None:
    """An error other than OUTCOME_UNKNOWN says that nothing is reserved (protocol, "Claims that fail")."""
    service = serve()
    service.log.topics.create(TOPIC)
    append(service.log, "a")
    session = service.log.access.create_session(lease_ms=1_000)

    def loses_the_answer_for_long(call: Callable[[], Any]) -> Any:
        service.runtime.advance(60_000)
        return loses_answer(call)

    service.items.plan("write", loses_the_answer_for_long)
    with pytest.raises(OutcomeUnknownError):
        service.log.access.claim(TOPIC, ClaimRequest("Exclusive", session_id=session.session_id))
    service.close()
