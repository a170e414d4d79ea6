"""Records placed by their keys, while the topic changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fenceline.format import keys
from fenceline.model.record import Record
from tests.protocol.log.test_topics import objects_of
from tests.support.patience import PATIENCE_S
from tests.support.service import TOPIC, Gate, Service
from tests.support.sweeping import Died


def _dies(call: Callable[[], Any]) -> Any:
    raise Died


def test_a_slow_look_of_another_thread_does_not_hide_that_the_topics_object_lacks_a_partition(service: Service) -> None:
    """The slow look puts an older item in the place of the one by which the records were placed.

    A rebuild would not find them.
    """
    gate = Gate(is_after=True)
    service.items.plan("get", gate)
    slow = threading.Thread(target=lambda: service.log.producing.share_out(TOPIC, [Record(b"")]), daemon=True)
    slow.start()
    assert gate.reached.wait(PATIENCE_S)
    service.objects.plan("create", _dies)
    with pytest.raises(Died):
        service.another().topics.alter(TOPIC, partitions=3)

    shares, until_ms = service.log.producing.share_out(TOPIC, [Record(b"x", str(n).encode()) for n in range(20)])
    gate.opened.set()
    slow.join(PATIENCE_S)
    last = shares.shares[-1]
    assert last.partition == 2
    assert service.log.producing.append_share(shares, last, until_ms) is not None
    assert objects_of(service, service.topic_id())[-1]["partitions"] == 3
    assert service.objects.store.list(keys.log_prefix(service.topic_id(), 2))
