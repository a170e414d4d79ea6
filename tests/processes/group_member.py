"""One member of a group as a process: ``python -m tests.processes.group_member URL TOPIC GROUP FILE``.

Rule: it appends a line to its file for all that its caller must know, each by one write, before it goes on: what it
got, what it handled, each commit that it sends, and the answer. Times are those of the machine's monotonic clock, which
all processes share.

A line on its standard input lets it freeze at the worst moment, after the work and before the commit. Once it goes on,
it first sends that commit by a plain request, as the member that it was, and then one as no member. Without a line more
(the end of the input) it leaves the group.

Not here: which member is killed or frozen, and what must hold of them all (``test_groups``, ``group_story``).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fenceline import Client, TopicPartition, errors
from fenceline.client.consumer.consumer import Consumer
from fenceline.model.group import Membership
from fenceline.model.subscription import CommittedOffset

SESSION_TIMEOUT_MS = 6_000  # the shortest
WORK_S = 0.002  # for a page
RETRY_MS = 600_000  # on a slow machine joins at once may lose for long


class Report:
    """The member's file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(self, event: str, **what: Any) -> None:
        line = json.dumps({"event": event, **what, "at": time.monotonic()}) + "\n"
        assert os.write(self._file, line.encode()) == len(line)


class ObservedClient(Client):
    """A client that reports its heartbeats, once they are answered."""

    report: Report

    def group_heartbeat(self, *args: Any, **options: Any) -> Membership:
        sent = time.monotonic()
        membership = super().group_heartbeat(*args, **options)
        self.report.say("beat", sent=sent)
        return membership


class Worker:
    """What the program does with the records of its partitions."""

    def __init__(self, client: Client, consumer: Consumer, report: Report) -> None:
        self._client = client
        self._consumer = consumer
        self._say = report.say
        self.is_to_freeze = threading.Event()

    def work(self) -> None:
        for topic, partition, records in self._consumer.pages():
            time.sleep(WORK_S)
            self._say("did", partition=partition, offsets=[record.offset for record in records])
            offset = records[-1].offset + 1
            if self.is_to_freeze.is_set():
                self._freeze(topic, partition, offset)
            self._commit(partition, offset, partial(self._consumer.commit, topic, partition, offset))

    def _freeze(self, topic: str, partition: int, offset: int) -> None:
        self.is_to_freeze.clear()
        was: dict[str, Any] = {
            "member_id": self._consumer.member_id,
            "member_epoch": self._consumer.member_epoch,
        }
        self._say("freezes")
        os.kill(os.getpid(), signal.SIGSTOP)
        self._say("goes on")
        commit = partial(self._client.commit_offsets, self._consumer.group, [CommittedOffset(topic, partition, offset)])
        self._commit(partition, offset, partial(commit, **was), is_late=True)
        self._commit(partition, offset, commit, is_late=True)

    def _commit(self, partition: int, offset: int, commit: Callable[[], None], *, is_late: bool = False) -> None:
        self._say("sends", partition=partition, offset=offset)
        try:
            commit()
        except errors.FixError as error:
            self._say("refused", code=error.code, is_late=is_late)
        except (errors.RetryError, errors.OutcomeUnknownError) as error:
            self._say("unknown", code=error.code)
        else:
            self._say("committed")


def main(url: str, topic: str, group: str, path: str) -> None:
    report = Report(path)

    def tokens_of(partitions: Sequence[TopicPartition]) -> dict[int, int]:
        tokens = {}
        for one in partitions:
            with suppress(errors.StaleMemberEpochError):  # lost at once; `on_lost` says so
                tokens[one.partition] = consumer.token(one.topic, one.partition)
        return tokens

    def numbers(partitions: Sequence[TopicPartition]) -> list[int]:
        return [one.partition for one in partitions]

    with ObservedClient(url, retry_ms=RETRY_MS) as client, suppress(KeyboardInterrupt):
        client.report = report
        with client.consumer(
            topic,
            group=group,
            start="earliest",
            commit="manual",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            on_assigned=lambda partitions: report.say("assigned", tokens=tokens_of(partitions)),
            on_revoked=lambda partitions: report.say("gave up", partitions=numbers(partitions)),
            on_lost=lambda partitions: report.say("lost", partitions=numbers(partitions)),
        ) as consumer:
            worker = Worker(client, consumer, report)
            threading.Thread(target=_hear, args=(worker,), daemon=True).start()
            worker.work()


def _hear(worker: Worker) -> None:
    for _ in sys.stdin:
        worker.is_to_freeze.set()
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main(*sys.argv[1:])
