"""The end of a program whose producers still have records.

Rule: records that were given to a producer and never flushed are sent at exit, on the threads that already run, because
a program that ends can start no other. One bound holds for all producers together. After it, one line on stderr says
how many records were not acknowledged.

- A producer whose block was left by an exception is closed by then, so none of its records is sent.

- No record and no end of a transaction is sent, because the transaction's time-out aborts it.

- A child of ``multiprocessing`` ends by the same rule, though Python calls no exit handler there.

- A process that is killed says nothing.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from fenceline.client.batch_queue import BatchQueue
from fenceline.client.calls import HERE
from fenceline.client.delivery import Failures, PendingBatch

FLUSH_S = 5.0


@dataclass(slots=True, eq=False)
class Watched:
    """A producer of ``topic``, as exit sees it: the batches on their way, and the failures."""

    topic: str
    queue: BatchQueue[Any, Any]
    failures: Failures
    made_in: int = field(default_factory=lambda: HERE.pid)


# There is no lock, because a child that was forked while another thread held it could make no producer.
_open: set[Watched] = set()
_registered_in: set[int] = set()  # processes


def watch(producer: Watched) -> None:
    """Flush at exit, unless ``forget`` was called by then."""
    if HERE.pid not in _registered_in:
        _registered_in.add(HERE.pid)
        atexit.register(flush_all)
        _register_in_worker()
    _open.add(producer)


def forget(producer: Watched) -> None:
    """Leave a producer alone at exit: it was closed."""
    _open.discard(producer)


def flush_all() -> None:
    """Send the records that this process's producers still have, and say on stderr how many were not acknowledged."""
    mine = [one for one in _open.copy() if one.made_in == HERE.pid]
    _open.clear()
    try:
        _wait([batch for one in mine for batch in one.queue.seal()])
    finally:  # also if Ctrl-C ends the wait
        _say(mine)


def _wait(batches: Sequence[PendingBatch[Any, Any]]) -> None:
    """Wait until these batches, and the parts that they are split into, are settled, or the time is over."""
    left_s, began = FLUSH_S, monotonic()
    while batches:
        wait([batch.outcome for batch in batches], left_s)
        if not all(batch.outcome.done() for batch in batches):
            return
        batches = [part for batch in batches for part in batch.parts]
        left_s = max(began + FLUSH_S - monotonic(), 0)


def _say(producers: Sequence[Watched]) -> None:
    count, topics, reasons = 0, set(), []
    for one in producers:
        lost = one.queue.close(drop=True) + one.queue.in_flight()
        failed, reason = one.failures.not_raised()
        if lost + failed:
            count += lost + failed
            topics.add(one.topic)
        if reason is not None:
            reasons.append(getattr(reason, "code", type(reason).__name__))
    if count and sys.stderr is not None:
        why = f" reason={reasons[0]}" if reasons else ""
        print(
            f"fenceline: {count} record{'s' if count > 1 else ''} could not be sent before the program ended, or no "
            f"answer came; call the producer's flush or close, which say why: topics={','.join(sorted(topics))}{why}",
            file=sys.stderr,
            flush=True,
        )


def _register_in_worker() -> None:
    """Flush at the end of a child of ``multiprocessing``, which ends without exit handlers."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return
    from multiprocessing.util import Finalize

    Finalize(None, _flush_in_worker, exitpriority=-100)  # after its other finalizers


def _flush_in_worker() -> None:
    # Python waits for them, too, but later. They may still send.
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    flush_all()
