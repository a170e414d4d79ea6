"""Members of a group that join at once: each is a client that follows the contract, as the consumer of Python does.

Not here: the servers, and what their stores are asked (``benchmarks.groups``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from fenceline import Client
from fenceline.errors import OutcomeUnknownError, RetryError
from fenceline.model.group import Membership, NamedPartitions

YOUNG_S, YOUNG_INTERVAL_S = 3.0, 1.0  # as the consumer: it asks each second in its first 3 s
SETTLED_S_MAX = 60.0


def settled_after_s(urls: Sequence[str], topic: str, members: int, partitions: int) -> float:
    """Let members of a group join at once, in a topic of its name, and return when all of them were settled.

    Raises:
        RuntimeError: They were not within a minute.
    """
    return _Joins(urls, topic, members, partitions).settled_s()


class _Joins:
    """One measurement."""

    def __init__(self, urls: Sequence[str], topic: str, members: int, partitions: int) -> None:
        self._urls = urls
        self._topic = topic
        self._members = members
        self._partitions = partitions
        self._known: dict[int, Membership] = {}
        self._settled_at = 0.0
        self._is_over = threading.Event()
        self._start = threading.Barrier(members + 1)

    def settled_s(self) -> float:
        """Return after how many seconds all members were settled, and knew of all partitions."""
        with ExitStack() as stack, ThreadPoolExecutor(self._members) as pool:
            clients = [stack.enter_context(Client(url)) for url in self._urls]
            live = [pool.submit(self._live, clients[n % len(clients)], n) for n in range(self._members)]
            try:
                self._start.wait()
                began = time.monotonic()
                is_settled = self._is_over.wait(SETTLED_S_MAX)
            finally:
                self._is_over.set()
                self._start.abort()
            for one in live:
                one.result()
        if not is_settled:
            raise RuntimeError(f"{self._members} members were not settled after {SETTLED_S_MAX:.0f} s")
        return self._settled_at - began

    def _live(self, client: Client, number: int) -> None:
        member_id = f"{self._topic}-m{number}"
        client.topic(self._topic)  # connects
        self._start.wait()
        began, epoch, owned = time.monotonic(), 0, None
        while not self._is_over.is_set():
            try:
                topics = [self._topic] if epoch == 0 else None
                answer = client.group_heartbeat(self._topic, member_id, epoch, topics=topics, owned=owned)
            except (RetryError, OutcomeUnknownError):
                continue  # the same heartbeat again
            stopped = number in self._known and _held(self._known[number]) - _held(answer)
            self._hear(number, answer)
            if not stopped:  # else it reports at once
                is_young = time.monotonic() - began < YOUNG_S
                pause_s = answer.heartbeat_interval_ms / 1_000
                self._is_over.wait(min(pause_s, YOUNG_INTERVAL_S) if is_young else pause_s)
            epoch = answer.member_epoch
            numbers = [partition for _, partition in sorted(_held(answer))]
            owned = None if answer.is_settled else [NamedPartitions(self._topic, "", numbers)]

    def _hear(self, number: int, answer: Membership) -> None:
        self._known[number] = answer
        known = [*self._known.values()]
        is_settled = len(known) == self._members and all(one.is_settled for one in known)
        if is_settled and sum(len(_held(one)) for one in known) == self._partitions and not self._is_over.is_set():
            self._settled_at = time.monotonic()
            self._is_over.set()


def _held(membership: Membership) -> set[tuple[str, int]]:
    return {(one.topic_id, held.partition) for one in membership.partitions for held in one.partitions}
