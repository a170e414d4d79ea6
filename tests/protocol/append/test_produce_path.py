"""The path of one warm produce, from the event to the acknowledgement, enters few modules and makes few calls.

Rule: a new module on this path is a choice, not an accident: the bounds here are what the path takes today.

Not here: the stores' calls, which each append test counts, and times, which depend on the machine.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from fenceline.format.batch import encode
from fenceline.model.record import Record
from fenceline.runtime import ThreadRuntime
from fenceline.settings import Settings
from fenceline_http import dispatch
from fenceline_http.wiring import Service as Wired
from tests.support.http_events import BATCH_TYPE, event
from tests.support.runtime import START_MS
from tests.support.service import TOPIC, Service

MODULES_MAX = 22
CALLS_MAX = 167
PACKAGES = ("fenceline", "fenceline_http")
# Around the path, not on it.
APART = ("fenceline.adapters", "fenceline.observed", "fenceline.runtime", "fenceline_http.store_meter")


def entered(act: Callable[[], object]) -> Counter[str]:
    """Return how often ``act`` calls a function of each module on the path, in this thread."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, what: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if what == "call" and module.partition(".")[0] in PACKAGES and not module.startswith(APART):
            calls[module] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return calls


def test_a_warm_produce_of_one_record_takes_no_detour(service: Service) -> None:
    stores: Any = (service.objects, service.items)
    wired = Wired(Settings(":memory:"), service.log, *stores, ThreadRuntime(4), "0.0.0")
    body = encode([Record(b"v")], now_ms=START_MS).body
    sent = event("POST", f"/v1/topics/{TOPIC}/partitions/0/records", headers={"content-type": BATCH_TYPE}, body=body)

    def produce() -> None:
        assert dispatch.respond("produce", sent, wired).status == 200

    for _ in range(3):
        produce()
    before = service.count()
    found = entered(produce)
    assert service.count() - before == {"objects.create": 1}
    assert len(found) <= MODULES_MAX, "\n".join(sorted(found))
    assert found.total() <= CALLS_MAX, "\n".join(f"{calls} {module}" for module, calls in found.most_common())


def test_a_call_is_counted_for_its_module() -> None:
    found = entered(lambda: encode([Record(b"v")], now_ms=START_MS))
    assert found.keys() == {"fenceline.format.batch", "fenceline.model.record"}
