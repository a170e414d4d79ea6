"""Acknowledgements of a subscriber, gathered and sent together.

Rules:

- What is gathered is sent by the first call after ``every_ms``, before it waits, and at the end. No thread does it.
  Behind the end each is sent at once.
- All that was gathered up to a cumulative offset is one request for its partition. The individual offsets beyond it
  are another one.
- A refusal of one partition's says that nothing of it was acknowledged: it is dropped, since the same fails again. What
  the service could not be asked, or did not answer, is kept: acknowledging twice is as good as once.
- What happens to one partition's keeps no other's from being sent, unless nobody answers those either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from fenceline import errors, limits
from fenceline.runtime import Runtime

GATHERED_MAX = 10_000  # acknowledgements, of all partitions; more are not left to a crash
_REST_MS = 2_000  # how long the one try may take that each request has behind one that failed
_NOBODY_ANSWERS = (errors.StoreUnavailableError, errors.OutcomeUnknownError)


class Send(Protocol):
    """One request: acknowledge offsets of a partition, and return the mark after it."""

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
    """What was acknowledged of a partition and is not sent."""

    cumulative: int | None = None
    individual: set[int] = field(default_factory=set)

    def beyond(self) -> list[int]:
        if self.cumulative is None:
            return sorted(self.individual)
        return sorted(offset for offset in self.individual if offset > self.cumulative)


class Acknowledgements:
    """Gathers for ``every_ms`` and sends. Safe to share between threads.

    Args:
        every_ms: How long an acknowledgement may wait for the next call; 0 sends each at once.
    """

    def __init__(self, send: Send, runtime: Runtime, every_ms: int) -> None:
        self._send = send
        self._runtime = runtime
        self._every_ms = every_ms
        self._lock = runtime.lock()  # held while a request is under way: nothing passes by it
        self._gathered: dict[int, _Gathered] = {}
        self._count = 0
        self._due_ms: int | None = None  # of the oldest (monotonic clock)
        self._marks: dict[int, int] = {}

    def add(self, partition: int, *, cumulative: int | None = None, individual: Iterable[int] = ()) -> int:
        """Gather, send what is due, and return the partition's mark as the service told it last; -1 before that."""
        offsets = list(individual)
        if self._every_ms:
            with self._lock:
                if self._every_ms:  # else another thread has sent the last of them meanwhile
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
        """Return how long it is until something is due; ``None`` if nothing is gathered."""
        due_ms = self._due_ms
        return None if due_ms is None else max(due_ms - self._runtime.monotonic_ms(), 0)

    def send_due(self) -> None:
        """Send all that is gathered if the oldest is due, or if there is much of it; raises as ``send_all``."""
        if self._due_ms is None:
            return
        with self._lock:
            if self.left_ms() == 0 or self._count >= GATHERED_MAX:
                self.send_all()

    def send_all(self, *, within_ms: int | None = None) -> None:
        """Send all that is gathered.

        Args:
            within_ms: How long to try for a request, instead of the client's own times.

        Raises:
            FixError, CorruptLogError: Of the first partition that was refused. What was gathered for it is dropped.
            FencelineError: The service could not be asked, or did not answer. What it may lack is still gathered.
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
                    self._gathered[partition] = self._gathered.pop(partition)  # next time the others come first
                    if trouble is not None and isinstance(error, _NOBODY_ANSWERS):
                        break
                    # It may be this partition's trouble alone: it takes no other's acknowledgements with it.
                    trouble = trouble or error
                    retry_ms, timeout_ms = 0, _REST_MS if within_ms is None else within_ms
                    continue
                del self._gathered[partition]
            self._count = sum(len(gathered.individual) or 1 for gathered in self._gathered.values())
            # What is kept may wait as long again: a caller who goes on gets records meanwhile.
            self._due_ms = self._runtime.monotonic_ms() + self._every_ms if self._gathered else None
        # A refusal first: of what is dropped nobody would hear; the next call that sends meets the other one again.
        if (told := refusal or trouble) is not None:
            raise told

    def send_last(self, *, within_ms: int | None = None) -> None:
        """Send all that is gathered, as ``send_all``, and from now on each at once: no later call would."""
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
