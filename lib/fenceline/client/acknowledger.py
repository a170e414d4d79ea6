"""Acknowledgements of a subscriber, gathered and sent together.

Rule: an acknowledgement is kept until the service answers for it. One partition never delays another.

- No thread sends acknowledgements. The first call after ``every_ms`` sends those that are gathered before it waits, and
  so does the end. After the end each acknowledgement is sent at once.

- For each partition, all that was gathered up to a cumulative offset is one request, and the individual offsets beyond
  that offset are another.

- A refusal for one partition says that nothing of it was acknowledged. The acknowledgements of that partition are
  dropped, because the same request would be refused again.

- Acknowledgements that the service did not answer are kept and sent again, because acknowledging twice is as good as
  once.

- If one partition's request fails, those of the other partitions are still sent, until one of them is not answered
  either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from fenceline import errors, limits
from fenceline.runtime import Runtime

GATHERED_MAX = 10_000  # acknowledgements of all partitions that a crash may lose
_REST_MS = 2_000  # for the single try of each request after one that failed
_NO_ANSWER = (errors.StoreUnavailableError, errors.OutcomeUnknownError)


class SendAcknowledgement(Protocol):
    """A request that acknowledges offsets of a partition and returns the mark after it."""

    def __call__(
        self,
        partition: int,
        *,
        cumulative: int | None = None,
        individual: Iterable[int] | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> int: ...


@dataclass(slots=True)
class _Gathered:
    """A partition's acknowledgements that are not sent yet."""

    cumulative: int | None = None
    individual: set[int] = field(default_factory=set)

    def beyond(self) -> list[int]:
        if self.cumulative is None:
            return sorted(self.individual)
        return sorted(offset for offset in self.individual if offset > self.cumulative)


class Acknowledgements:
    """A subscriber's acknowledgements, gathered for ``every_ms``. Safe to share between threads.

    Args:
        every_ms: How long an acknowledgement may wait for the next call; 0 sends each at once.
    """

    def __init__(self, send: SendAcknowledgement, runtime: Runtime, every_ms: int) -> None:
        self._send = send
        self._runtime = runtime
        self._every_ms = every_ms
        self._lock = runtime.lock()  # held during each request, so that none overtakes another
        self._gathered: dict[int, _Gathered] = {}
        self._count = 0
        self._due_ms: int | None = None  # when the oldest acknowledgement is due (monotonic clock)
        self._marks: dict[int, int] = {}

    def add(self, partition: int, *, cumulative: int | None = None, individual: Iterable[int] = ()) -> int:
        """Gather, send what is due, and return the partition's mark of the service's last answer; -1 before that."""
        offsets = list(individual)
        if self._every_ms:
            with self._lock:
                if self._every_ms:  # 0 once another thread has called `send_last`
                    return self._gather(partition, cumulative, offsets)
        if cumulative is not None:
            return self._send(partition, cumulative=cumulative)
        return self._send(partition, individual=offsets)

    def _gather(self, partition: int, cumulative: int | None, offsets: Sequence[int]) -> int:
        gathered = self._gathered.setdefault(partition, _Gathered())
        gathered.individual.update(offsets)
        if cumulative is not None:
            gathered.cumulative = max(cumulative, -1 if gathered.cumulative is None else gathered.cumulative)
        self._count += len(offsets) or 1
        if self._due_ms is None:
            self._due_ms = self._runtime.monotonic_ms() + self._every_ms
        self.send_due()
        return self._marks.get(partition, -1)

    def left_ms(self) -> int | None:
        """Return the time until an acknowledgement is due; ``None`` if none is gathered."""
        due_ms = self._due_ms
        return None if due_ms is None else max(due_ms - self._runtime.monotonic_ms(), 0)

    def send_due(self) -> None:
        """Send all acknowledgements if the oldest is due, or if there are many; raises as ``send_all``."""
        if self._due_ms is None:
            return
        with self._lock:
            if self.left_ms() == 0 or self._count >= GATHERED_MAX:
                self.send_all()

    def send_all(self, *, within_ms: int | None = None) -> None:
        """Send all that is gathered.

        Args:
            within_ms: For how many ms each request is sent again, counted from its first try, instead of the client's
                own time; one try may stay without an answer for as long. A request that is not answered within this
                time keeps its acknowledgements gathered, and each of the other requests is then tried once.

        Raises:
            FixError, CorruptLogError: The service refused a partition, the first one if several. Its acknowledgements
                are dropped.
            FencelineError: The service could not be reached, or did not answer. What it may lack is still gathered.
        """
        refusal: errors.FencelineError | None = None
        trouble: errors.FencelineError | None = None
        retry_ms = timeout_ms = within_ms
        with self._lock:
            for partition, gathered in list(self._gathered.items()):
                try:
                    self._send_one(partition, gathered, retry_ms, timeout_ms)
                except (errors.FixError, errors.CorruptLogError) as error:
                    refusal = refusal or error
                except errors.FencelineError as error:
                    self._gathered[partition] = self._gathered.pop(partition)  # last in the next round
                    if trouble is not None and isinstance(error, _NO_ANSWER):
                        break
                    # The error may be this partition's alone, so the others are tried all the same.
                    trouble = trouble or error
                    retry_ms, timeout_ms = 0, _REST_MS if within_ms is None else within_ms
                    continue
                del self._gathered[partition]
            self._count = sum(len(gathered.individual) or 1 for gathered in self._gathered.values())
            # What is kept may wait as long again, so that a caller that goes on gets records meanwhile.
            self._due_ms = self._runtime.monotonic_ms() + self._every_ms if self._gathered else None
        # The refusal is raised first, because its acknowledgements are dropped and no later call would report them. The
        # other error is met again by the next call that sends.
        if (raised := refusal or trouble) is not None:
            raise raised

    def send_last(self, *, within_ms: int | None = None) -> None:
        """Send all that is gathered, as ``send_all`` with its ``within_ms``, and each later acknowledgement at once."""
        with self._lock:
            self._every_ms = 0
            self.send_all(within_ms=within_ms)

    def _send_one(self, partition: int, gathered: _Gathered, retry_ms: int | None, timeout_ms: int | None) -> None:
        send = partial(self._send, partition, retry_ms=retry_ms, timeout_ms=timeout_ms)
        if gathered.cumulative is not None:
            self._marks[partition] = send(cumulative=gathered.cumulative)
        beyond = gathered.beyond()
        for at in range(0, len(beyond), limits.ACKNOWLEDGED_PER_REQUEST_MAX):
            self._marks[partition] = send(individual=beyond[at : at + limits.ACKNOWLEDGED_PER_REQUEST_MAX])
