"""The replicator, which looks at partitions that a message names, or that the schedule finds.

Rule: a message is done when its partition was looked at, even if nothing could be taken. For work that is due later the
replicator sends itself one delayed message. A message that cannot be read, whose partition fails, or whose call died,
comes again, and becomes a dead letter after five times. The next call finds the work that a dead one left.

Rule: the schedule sends messages and takes nothing itself, so that many calls share the work. Each minute it names a
fifth of all partitions, so that a record whose news were lost arrives within five minutes. It also names all partitions
of topics with a replicated subscription, because an acknowledgement makes no news.

Not here: what a look does (``fenceline.regions``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

from fenceline.errors import CorruptLogError, UnknownTopicOrPartitionError
from fenceline.log.context import Context, Instant
from fenceline.model.transaction import TopicPartition
from fenceline.regions.status import NO_ALARMS, AlarmFigures
from fenceline.settings import Settings
from fenceline_http.request import schedule_ms
from fenceline_http.wiring import Service
from functions.replication import messages
from functions.replication.messages import Event, Queues
from functions.telemetry.observed import text_of

_LOOK_MINUTES = 5  # between two looks at a partition of which no message came
_PLACES_REMEMBERED_MAX = 10_000  # with the time of the last delayed message, in one process


class PullResult(NamedTuple):
    """The outcome of one look at a partition.

    Args:
        took: How many records it took.
        next_ms: When the partition should be looked at again; ``None`` if only when it is named again.
        error: What it failed with; ``None`` if it did not.
        figures: What an alarm may be about.
    """

    took: int = 0
    next_ms: int | None = None
    error: Exception | None = None
    figures: AlarmFigures = NO_ALARMS


class Replicating:
    """The replicator of one process.

    Args:
        open_queues: Makes the queues that the settings name, at the first call.
    """

    def __init__(self, open_queues: Callable[[Settings], Queues]) -> None:
        self._open = open_queues
        self._queues: Queues | None = None
        self._delayed: dict[TopicPartition, tuple[Instant, int]] = {}  # when it was sent, and the delay

    def run(self, event: Event, _context: object, service: Service) -> dict[str, Any]:
        """Look at the partitions that a batch of messages names, or send messages for those that are due.

        An error of a partition, documented or not, is reported and never raised, so that only its own messages come
        again.

        Raises:
            FencelineError, StoreFact: The own queue took no messages, so that all messages of the batch come again. Or
                the partitions that are due could not be found.
        """
        if self._queues is None:
            self._queues = self._open(service.settings)
        if "Records" not in event:
            service.log.note_event(schedule_ms(event))
            return self._by_schedule(schedule_ms(event) // 60_000, service, self._queues)
        service.log.note_event(messages.sent_ms(event))
        return self._by_messages(event["Records"], service, self._queues)

    def _by_schedule(self, minute: int, service: Service, queues: Queues) -> dict[str, Any]:
        found = [TopicPartition(topic, partition) for topic, partition in service.log.replication.partitions()]
        consumed = {topic for topic in {place.topic for place in found} if _is_consumed(service, topic)}
        due = [place for place in found if not minute or place.topic in consumed or _is_turn(place, minute)]
        queues.own.send([messages.to_body(place) for place in due])
        return {"partitions": len(found), "due": len(due)}

    def _by_messages(self, records: Sequence[Mapping[str, Any]], service: Service, queues: Queues) -> dict[str, Any]:
        wanted: dict[TopicPartition, list[str]] = defaultdict(list)
        failed = []
        for record in records:
            try:
                wanted[messages.from_body(record["body"])].append(record["messageId"])
            except ValueError:
                failed.append(record["messageId"])
        looked = service.runtime.gather([partial(_look, service, place) for place in wanted])
        later: dict[TopicPartition, int] = {}
        errors: list[Exception] = []
        for place, one in zip(wanted, looked, strict=True):
            if one.error is not None:
                failed += wanted[place]
                errors.append(one.error)
            elif one.next_ms is not None:
                later[place] = one.next_ms
        self._send_later(service.log.context, queues, later)
        return {
            "batchItemFailures": messages.failures(failed),
            "messages": len(records),
            "partitions": len(wanted),
            "took": sum(one.took for one in looked),
            "errors": [text_of(error) for error in errors],
            "corrupt": sum(isinstance(error, CorruptLogError) for error in errors),
            "gaps": sum(one.figures.gaps for one in looked),
            "other_histories": sum(one.figures.other_histories for one in looked),
            "lag_ms": max((one.figures.lag_ms for one in looked), default=0),
        }

    def _send_later(self, context: Context, queues: Queues, wanted: Mapping[TopicPartition, int]) -> None:
        """Send the delayed messages that name partitions again.

        No message is sent if one that comes in time is on its way, because each look at a busy partition would
        otherwise add a message.
        """
        later: dict[int, list[TopicPartition]] = defaultdict(list)
        for place, next_ms in wanted.items():
            delay_s = max(-(-next_ms // 1000), 1)
            sent = self._delayed.get(place)
            if sent is None or sent[1] > delay_s or not context.is_within(sent[1] * 1000, sent[0]):
                later[delay_s].append(place)
        for delay_s, places in later.items():
            at = context.instant()
            queues.own.send([messages.to_body(place) for place in places], delay_s=delay_s)
            if len(self._delayed) >= _PLACES_REMEMBERED_MAX:
                self._delayed.clear()
            self._delayed.update((place, (at, delay_s)) for place in places)


def _is_consumed(service: Service, topic: str) -> bool:
    """Return True if a topic has a subscription whose acknowledgements travel to other regions."""
    after, has_more = "", True
    while has_more:
        try:
            listed, has_more = service.log.subscriptions.list(topic, start_after=after)
        except UnknownTopicOrPartitionError:  # deleted since it was listed
            return False
        if any(one.replicate_subscription_state for one in listed):
            return True
        after = listed[-1].name if listed else ""
    return False


def _is_turn(place: TopicPartition, minute: int) -> bool:
    """Return True if it is a partition's turn: in one of five minutes, without any note of when it was looked at."""
    return crc32(messages.to_body(place).encode()) % _LOOK_MINUTES == minute % _LOOK_MINUTES


def _look(service: Service, place: TopicPartition) -> PullResult:
    try:
        run = service.log.replication.run(place.topic, place.partition)
        figures = service.log.replication.alarm_figures(place.topic, place.partition)
    except UnknownTopicOrPartitionError:  # not created here yet, or deleted: there is nothing to do
        return PullResult()
    except Exception as error:  # noqa: BLE001  its message fails, and comes again; those of other partitions do not
        return PullResult(error=error)
    return PullResult(run.took_records, run.next_ms, figures=figures)
