"""Topics that change while a program lives: a second look at them, in the background.

Rule: a look is one request, on a thread of its own, so that it delays no record.

- A topic is looked at 60 s after the last look, and at once after an answer which shows that the topic may have
  changed, but not more often than once a second.

- A look that fails changes nothing, and is repeated after 5 s, or after 60 s if the service refused it.

- Any other exception, such as that of a caller's callback, goes to ``threading.excepthook``. The looks go on.

- A partition that was added is read from its beginning, whatever the start of the others, because all of its records
  came after that start. Under a session that reads for a group, the partition is read once the session owns it.

Not here: what else follows from a look. The owner of the watch is called after each look, whether the topic changed or
not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from weakref import WeakMethod

from fenceline import errors
from fenceline.client.api import ApiClient
from fenceline.client.faults import report_fault
from fenceline.model.topic import Topic

LOOK_MS = 60_000
RETRY_MS = 5_000
DOUBT_MS = 1_000
_ANSWER_MS = 10_000

# A refusal by one of these may come of a topic that is known as it was.
OUTDATED = (errors.UnknownTopicOrPartitionError, errors.MessageTooLargeError)


class TopicWatch:
    """The looks at the topics of one producer, reader or subscriber, until ``close``. Safe to share between threads.

    Args:
        tell: A method, called with each topic that was looked at. If it raises a ``FencelineError``, the look counts
            as failed. It is held weakly: the watch ends with the method's object.
        is_paused: Whether it begins with ``go_on``.
    """

    def __init__(self, client: ApiClient, tell: Callable[[Topic], object], *, is_paused: bool = False) -> None:
        self._client = client
        self._runtime = client.runtime
        self._lock = self._runtime.lock()
        self._changed = self._runtime.condition(self._lock)
        self._tell = WeakMethod(tell, lambda _: self.close())
        self._due_ms: dict[str, int] = {}  # by topic
        self._looked_ms: dict[str, int] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_paused = is_paused

    def add(self, topic: str) -> None:
        """Watch a topic that was just looked at."""
        with self._lock:
            self._due_ms[topic] = self._runtime.monotonic_ms() + LOOK_MS
            if not self._is_paused:
                self.go_on()

    def go_on(self) -> None:
        """Let the looks go on, unless ``close`` was called."""
        with self._lock:
            self._is_paused = False
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="fenceline-topics", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def pause(self) -> None:
        """Make no look, and have no thread, until ``go_on``. A look that is under way ends by itself."""
        with self._lock:
            self._is_paused = True
            self._changed.notify_all()

    def doubt(self, topic: str) -> None:
        """Look at a topic at once: an answer showed that it may have changed."""
        with self._lock:
            if topic in self._due_ms:
                looked_ms = self._looked_ms.get(topic)
                at_ms = self._runtime.monotonic_ms() if looked_ms is None else looked_ms + DOUBT_MS
                self._due_ms[topic] = min(self._due_ms[topic], at_ms)
                self._changed.notify_all()

    def close(self) -> None:
        """Make no further look. A look that is under way ends by itself, in a thread that is not waited for."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while (name := self._next()) is not None:
            try:
                self._look(name)
            except errors.FixError:
                pass  # such as a deleted topic: the owner's own requests say so, too
            except errors.FencelineError:
                self._put_off(name)
            except BaseException:  # noqa: BLE001  a fault of the owner, or of its callback
                report_fault()

    def _next(self) -> str | None:
        """Wait for a topic whose look is due; ``None`` at the end."""
        with self._lock:
            while not (self._is_closed or self._is_paused or self._client.is_closed):
                now_ms = self._runtime.monotonic_ms()
                name = min(self._due_ms, key=self._due_ms.__getitem__)
                if self._due_ms[name] <= now_ms:
                    self._looked_ms[name], self._due_ms[name] = now_ms, now_ms + LOOK_MS
                    return name
                self._changed.wait((self._due_ms[name] - now_ms) / 1000)
            self._thread = None
            return None

    def _look(self, name: str) -> None:
        topic = self._client.topic(name, retry_ms=0, timeout_ms=_ANSWER_MS)
        tell = self._tell()  # for the call only: else this thread would keep the owner
        if tell is not None and not self._is_closed:
            tell(topic)

    def _put_off(self, name: str) -> None:
        with self._lock:
            self._due_ms[name] = min(self._due_ms[name], self._runtime.monotonic_ms() + RETRY_MS)


class NewPartitions:
    """The partitions that are added to a topic while a reader or a subscriber follows it.

    Args:
        read: A method, called with the partitions that are to be read, too. It is held weakly. If it raises a
            ``FencelineError``, it is called again after the next look.
        first: The lowest number that counts as new.
        group, session_id: Read as this group, where the session owns the partitions.
    """

    def __init__(
        self,
        client: ApiClient,
        topic: str,
        first: int,
        read: Callable[[Sequence[int]], object],
        *,
        group: str | None = None,
        session_id: str | None = None,
    ) -> None:
        self._client = client
        self._read = WeakMethod(read)
        self._waiting: list[int] = []  # in order
        self._next = first
        self._group = group
        self._session_id = session_id
        self._topic = topic
        self._watch = TopicWatch(client, self._take, is_paused=True)
        self._watch.add(topic)
        self._is_going_on = False

    def refused(self, error: BaseException) -> None:
        """Look at the topic at once if that may be why a page was refused."""
        if isinstance(error, OUTDATED):
            self._watch.doubt(self._topic)

    def go_on(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self._watch.go_on()

    def pause(self) -> None:
        if self._is_going_on:
            self._is_going_on = False
            self._watch.pause()

    def close(self) -> None:
        self._watch.close()

    def _take(self, topic: Topic) -> None:
        self._waiting += range(self._next, topic.partitions)
        self._next = max(self._next, topic.partitions)
        if not self._waiting:
            return
        new: Sequence[int] = self._waiting
        if self._session_id is not None:
            owned = self._client.session_state(self._session_id).owned_partitions(topic.name, self._group)
            new = [partition for partition in new if partition in owned]
        if new and (read := self._read()) is not None:
            read(new)
        taken = frozenset(new)
        self._waiting = [partition for partition in self._waiting if partition not in taken]
