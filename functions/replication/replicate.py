"""The replicator: it looks at partitions that a message names, or that the schedule finds.

Rule: a message ends when its partition was looked at, also if nothing could be taken. Work that is due later is one
delayed message to itself. A message that cannot be read, or whose partition fails, comes again, and becomes a dead letter
after five times. The schedule sends messages and takes nothing itself, so that partitions are looked at side by side.

Not here: what a look does (``fenceline.regions``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from fenceline.errors import CorruptLogError, FencelineError, UnknownTopicOrPartitionError
from fenceline.log.context import Context, Instant
from fenceline.settings import Settings
from fenceline_http.request import schedule_ms
from fenceline_http.wiring import Service
from functions.replication import messages
from functions.replication.messages import Event, Place, Queues

_PLACES_MAX = 10_000  # of which one process knows when it sent a delayed message


class Looked(NamedTuple):
    """What one look at a partition came to.

    Args:
        took: How many records it took.
        next_ms: When the partition should be looked at again; ``None`` if only when it is named again.
        error: What it failed with; ``None`` if it did not.
    """

    took: int = 0
    next_ms: int | None = None
    error: FencelineError | None = None


class Replicating:
    """The replicator of one process.

    Args:
        open_queues: Makes the queues that the settings name, at the first call.
    """

    def __init__(self, open_queues: Callable[[Settings], Queues]) -> None:
        self._open = open_queues
        self._queues: Queues | None = None
        self._delayed: dict[Place, tuple[Instant, int]] = {}  # when it was sent, and the delay

    def run(self, event: Event, context: object, service: Service) -> dict[str, Any]:
        """Look at the partitions that a batch of messages names, or send messages for those that are due.

        Raises:
            StoreFact: A store, or the own queue, failed: all messages come again.
        """
        if self._queues is None:
            self._queues = self._open(service.settings)
        if "Records" not in event:
            service.log.note_event(schedule_ms(event))
            return self._by_schedule(service, self._queues)
        service.log.note_event(messages.sent_ms(event))
        return self._by_messages(event["Records"], service, self._queues)

    def _by_schedule(self, service: Service, queues: Queues) -> dict[str, Any]:
        found = service.log.replication.work_due()
        queues.own.send([messages.to_body(Place(one.topic, one.partition)) for one in found.due])
        return {"due": len(found.due), **_measured(found)}

    def _by_messages(
        self, records: Sequence[Mapping[str, Any]], service: Service, queues: Queues
    ) -> dict[str, Any]:
        wanted: dict[Place, list[str]] = defaultdict(list)
        failed = []
        for record in records:
            try:
                wanted[messages.from_body(record["body"])].append(record["messageId"])
            except ValueError:
                failed.append(record["messageId"])
        looked = service.runtime.gather([partial(_look, service, place) for place in wanted])
        later: dict[int, list[str]] = defaultdict(list)
        errors = []
        for place, one in zip(wanted, looked, strict=True):
            if one.error is not None:
                failed += wanted[place]
                errors.append(one.error)
            elif one.next_ms is not None and (delay_s := self._delay_s(service.log.context, place, one.next_ms)):
                later[delay_s].append(messages.to_body(place))
        for delay_s, bodies in later.items():
            queues.own.send(bodies, delay_s=delay_s)
        return {
            "batchItemFailures": messages.failures(failed),
            "messages": len(records),
            "partitions": len(wanted),
            "took": sum(one.took for one in looked),
            "errors": [f"{type(error).__name__}: {error}" for error in errors],
            "corrupt": sum(isinstance(error, CorruptLogError) for error in errors),
        }

    def _delay_s(self, context: Context, place: Place, next_ms: int) -> int:
        """Return the delay of the message that names a partition again; 0 if one is on its way that comes in time.

        Without this a partition that is busy for an hour would have one more message for each look.
        """
        delay_s = max(-(-next_ms // 1000), 1)
        sent = self._delayed.get(place)
        if sent is not None and context.is_within(sent[1] * 1000, sent[0]) and sent[1] <= delay_s:
            return 0
        if len(self._delayed) >= _PLACES_MAX:
            self._delayed.clear()
        self._delayed[place] = (context.instant(), delay_s)
        return delay_s


def _look(service: Service, place: Place) -> Looked:
    try:
        run = service.log.replication.run(place.topic, place.partition)
    except UnknownTopicOrPartitionError:  # not created here yet, or deleted: there is nothing to do
        return Looked()
    except FencelineError as error:
        return Looked(error=error)
    return Looked(run.took_records, run.next_ms)


def _measured(found: Any) -> dict[str, int]:
    return {}
