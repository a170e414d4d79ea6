"""A replicated key-value store whose leader is the topic's exclusive producer: PIP-68's own use case.

Three processes follow one log. Each waits for exclusive access (WaitForExclusive), to lead. The process that has access
writes; all of them apply the log's records in its order.

The driver lets clients write all the time. It kills the leader with kill -9, and a second process takes over. It stops
the second process with SIGSTOP in the middle of its writes, and a third one takes over. It then continues the stopped
process, which still believes that it leads.

The driver checks that no acknowledged write is lost, and that all replicas end equal. None of the stopped leader's late
writes may be in the log. No process here votes or agrees with another: the log's single order decides.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.table import Table
from stage import Child, ComparisonError, Event, check, commands, console, say, serving, show_result

from fenceline import Client, Delivery, Producer, ReadRecord, errors
from fenceline.errors import FencelineError

TOPIC = "kv"
LEASE_MS = 1_000
CLIENTS = 4
KEYS = 50
LATE, LATE_WRITES = "late", 20
Fate = Literal["kill", "stop"]


# A node


class Node:
    """A replica, in a process of its own."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._state: dict[str, str] = {}
        self._position = 0  # applied up to here
        self._producer: Producer | None = None
        threading.Thread(target=self._follow, daemon=True).start()
        threading.Thread(target=self._lead, daemon=True).start()

    def run(self) -> None:
        for command in commands():
            match command:
                case {"put": key, "value": value, "id": number}:
                    self._put(key, value, number)
                case {"dump": next_offset}:
                    self._catch_up(next_offset)
                    say(event="state", state=self._state)

    def _follow(self) -> None:
        while True:
            page = self._client.read(self._topic, 0, offset=self._position, wait_ms=10_000)
            for record in page.records:
                self._state[(record.key or b"").decode()] = (record.value or b"").decode()
            self._position = page.position

    def _catch_up(self, next_offset: int) -> None:
        """Wait until every record below ``next_offset`` is applied."""
        while self._position < next_offset:
            time.sleep(0.002)

    def _lead(self) -> None:
        """Wait to lead, lead until fenced, and wait again."""
        while True:
            fenced = threading.Event()
            try:
                producer = self._client.producer(
                    self._topic,
                    access_mode="WaitForExclusive",
                    lease_ms=LEASE_MS,
                    on_fenced=lambda _, fenced=fenced: fenced.set(),
                )
            except FencelineError:
                # This process was stopped for longer than its place in the queue lives, so it queues again.
                time.sleep(0.05)
                continue
            claim = producer.claim
            assert claim is not None
            # A new leader must know every write that was ever acknowledged.
            self._catch_up(claim.next_offsets[0])
            self._producer = producer
            say(event="leads", epoch=claim.topic_epochs[0], next_offset=claim.next_offsets[0])
            fenced.wait()
            self._producer = None
            assert producer.held.loss is not None
            say(event="fenced", epoch=claim.topic_epochs[0], code=producer.held.loss.code)
            try:
                producer.close()
            except FencelineError as error:
                # Each refused write was reported by its delivery.
                say(event="closed", code=error.code)

    def _put(self, key: str, value: str, number: int) -> None:
        producer = self._producer
        if producer is None:
            say(event="refused", id=number, code="NOT_LEADING")
            return
        try:
            delivery = producer.send(key=key.encode(), value=value.encode())
        except (FencelineError, RuntimeError) as error:  # RuntimeError: producer closed in between
            say(event="refused", id=number, code=getattr(error, "code", "CLOSED"))
            return
        delivery.on_done(lambda done: _report_outcome(done, number))


def _report_outcome(delivery: Delivery, number: int) -> None:
    try:
        delivered = delivery.result()
    except errors.OutcomeUnknownError as error:
        say(event="unknown", id=number, code=error.code)
    except FencelineError as error:
        say(event="refused", id=number, code=error.code)
    else:
        say(event="acknowledged", id=number, offset=delivered.offset)


# The driver


@dataclass(frozen=True, slots=True)
class Reign:
    """A node that began to lead, and the time without a leader before."""

    node: str
    epoch: int
    next_offset: int
    takeover_s: float


@dataclass
class Write:
    """A put that a client asked for, and its answer."""

    key: str
    value: str
    node: str
    outcome: str = "unanswered"
    offset: int = -1
    is_answered: threading.Event = field(default_factory=threading.Event)


class Cluster:
    """The nodes, the clients that write to the present leader, and all answers that they got."""

    def __init__(self, url: str, topic: str, nodes: Sequence[str]) -> None:
        self._url = url
        self._topic = topic
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.reigns: list[Reign] = []
        self.fenced: list[tuple[str, int, str]] = []
        self.writes: list[Write] = []
        self._states: dict[str, dict[str, str]] = {}
        self._vacant_since = time.monotonic()
        self._is_writing = True
        self._children: dict[str, Child] = {}
        for name in nodes:
            self.start(name)
        self._clients = [threading.Thread(target=self._write, args=(n,), daemon=True) for n in range(CLIENTS)]
        for thread in self._clients:
            thread.start()

    def start(self, name: str) -> None:
        arguments = ["--node", name, "--url", self._url, "--topic", self._topic]
        self._children[name] = Child(__file__, arguments, lambda child, event: self._hear(name, child, event))

    def leader(self, after: int = -1) -> Reign:
        """Wait for a leader of a later epoch than ``after``."""
        with self._changed:
            is_there = self._changed.wait_for(lambda: bool(self.reigns) and self.reigns[-1].epoch > after, timeout=60)
            check(is_there, f"no node leads after epoch {after}")
            return self.reigns[-1]

    def take_over(self, fate: Fate) -> Reign:
        """End the leader by ``fate``, wait for the next, and bring the old one back; return the next."""
        old = self.leader()
        with self._lock:
            self._vacant_since = time.monotonic()
        child = self._children[old.node]
        if fate == "kill":
            child.kill()
            new = self.leader(old.epoch)
            self.start(old.node)
            return new
        child.stop()
        new = self.leader(old.epoch)
        # These wait in the node's pipe until it is continued, and find it believing that it leads.
        late = [self._send(old.node, f"late-{number}", LATE) for number in range(LATE_WRITES)]
        child.go_on()
        with self._changed:
            heard = self._changed.wait_for(lambda: any(one[:2] == (old.node, old.epoch) for one in self.fenced), 30)
        check(heard, f"{old.node} was continued, and never learned that it no longer leads: epoch={old.epoch}")
        check(all(write.is_answered.wait(30) for write in late), f"a late write to {old.node} was never answered")
        return new

    def finish(self) -> dict[str, dict[str, str]]:
        """End the clients, let every node apply the whole log, and return their states."""
        self._is_writing = False
        for thread in self._clients:
            thread.join()
        with Client(self._url) as client:
            next_offset = client.offsets(self._topic, 0).bounds.next_offset
        for child in self._children.values():
            child.send(dump=next_offset)
        with self._changed:
            check(self._changed.wait_for(lambda: len(self._states) == len(self._children), 60), "a node hangs")
        return self._states

    def close(self) -> None:
        self._is_writing = False
        for child in self._children.values():
            child.close()

    def _write(self, client: int) -> None:
        """Put one value after the other, as a client does, each to the present leader."""
        number = 0
        while self._is_writing:
            reign = self.leader()
            write = self._send(reign.node, f"key-{number % KEYS}", f"{client}.{number}")
            # Also at the end: a write under way would come into the log beyond what the nodes have applied by then.
            while not write.is_answered.wait(0.05) and self.leader().epoch == reign.epoch:
                pass
            if write.outcome == "refused":
                time.sleep(0.01)  # for the next leader
            number += 1

    def _send(self, node: str, key: str, value: str) -> Write:
        with self._lock:
            number = len(self.writes)
            write = Write(key, value, node)
            self.writes.append(write)
        self._children[node].send(put=key, value=value, id=number)
        return write

    def _hear(self, name: str, child: Child, event: Event) -> None:
        with self._changed:
            match event:
                case {"event": "leads", "epoch": epoch, "next_offset": next_offset}:
                    vacancy = time.monotonic() - self._vacant_since
                    self.reigns.append(Reign(name, epoch, next_offset, vacancy))
                case {"event": "fenced", "epoch": epoch, "code": code}:
                    self.fenced.append((name, epoch, code))
                case {"event": "state", "state": state}:
                    self._states[name] = state
                case {"event": "acknowledged" | "refused" | "unknown" as outcome, "id": number}:
                    write = self.writes[number]
                    write.outcome, write.offset = outcome, event.get("offset", -1)
                    write.is_answered.set()
                case {"event": "ended"}:
                    for write in self.writes:
                        if write.node == name and self._children.get(name) is child:
                            write.is_answered.set()  # without an answer; the client goes on
            self._changed.notify_all()


def log_of(client: Client, topic: str) -> list[ReadRecord]:
    """Return every record of the log, each with the epoch under which it was written."""
    records: list[ReadRecord] = []
    position, end = 0, client.offsets(topic, 0).bounds.next_offset
    while position < end:
        page = client.read(topic, 0, offset=position, max_records=10_000)
        records += page.records
        position = page.position
    return records


def compare(
    writes: Sequence[Write], reigns: Sequence[Reign], states: Mapping[str, dict[str, str]], log: Sequence[ReadRecord]
) -> Counter[str]:
    """Compare the clients' answers with the log, and the log with every replica; return how writes ended."""
    stored = {record.offset: ((record.key or b"").decode(), (record.value or b"").decode()) for record in log}
    count = Counter(stored.values())
    for write in writes:
        what = f"key={write.key} value={write.value} node={write.node}"
        if write.outcome == "acknowledged":
            check(stored.get(write.offset) == (write.key, write.value), f"an acknowledged write is lost: {what}")
        elif write.outcome == "refused":
            check(count[write.key, write.value] == 0, f"a refused write is in the log: {what}")
    check(LATE not in {value for _, value in stored.values()}, "a late write of a stopped leader is in the log")
    check(max(count.values()) == 1, "a write is in the log twice")
    # By the log's order: the nodes' words about their reigns may come in another one.
    epochs = [reign.epoch for reign in sorted(reigns, key=lambda reign: reign.next_offset)]
    check(epochs == sorted(set(epochs)), f"an epoch was given twice, or went back: {epochs}")
    for record in log:
        epoch = max(reign.epoch for reign in reigns if reign.next_offset <= record.offset)
        where = f"offset={record.offset} its epoch={record.topic_epoch} epoch in force={epoch}"
        check(record.topic_epoch == epoch, f"a node wrote that did not lead: {where}")
    expected: dict[str, str] = {}
    for key, value in stored.values():
        expected[key] = value
    for name, state in states.items():
        check(state == expected, f"replica {name} differs from the log")
    return Counter(write.outcome for write in writes)


def main() -> int:
    parser = argparse.ArgumentParser(description="A key-value store of three processes, whose leader is fenced.")
    parser.add_argument("--url", help="A running fenceline service; left out, one is started.")
    parser.add_argument("--topic", default=f"{TOPIC}-{time.time_ns()}", help="A topic that does not exist yet.")
    parser.add_argument("--node", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.node is not None:
        with Client(given.url) as client:
            Node(client, given.topic).run()
        return 0
    try:
        with serving(given.url) as url:
            drive(url, given.topic)
    except (ComparisonError, RuntimeError, OSError) as error:
        console.print(f"[red]✗[/] {error}", style="bold")
        return 1
    except FencelineError as error:
        console.print(f"[red]✗[/] {error.code}: {error.detail}", style="bold")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def drive(url: str, topic: str) -> None:
    with Client(url, retry_ms=2_000) as client:
        client.create_topic(topic)
    console.print(f"three nodes follow {topic} at {url}; {CLIENTS} clients write to the present leader")
    cluster = Cluster(url, topic, ["a", "b", "c"])
    try:
        first = cluster.leader()
        console.print(f"  {first.node} leads, epoch {first.epoch}")
        for fate, what in (("kill", "was killed (kill -9)"), ("stop", "was stopped (SIGSTOP)")):
            time.sleep(1.0)
            old = cluster.leader()
            new = cluster.take_over(fate)
            then = "" if fate == "kill" else f"; {old.node} was continued, and fenced"
            console.print(
                f"  {old.node} {what}: {new.node} leads, epoch {new.epoch}, after {new.takeover_s:.2f} s{then}"
            )
        time.sleep(1.0)
        states = cluster.finish()
        with Client(url) as client:
            outcomes = compare(cluster.writes, cluster.reigns, states, log_of(client, topic))
    finally:
        cluster.close()
    show(cluster, outcomes, states)


def show(cluster: Cluster, outcomes: Counter[str], states: dict[str, dict[str, str]]) -> None:
    late = Counter(write.outcome for write in cluster.writes if write.value == LATE)
    console.print()
    show_result("acknowledged writes", f"{outcomes['acknowledged']:,}, each in the log at its offset")
    refused = f"{sum(late.values())} sent, {late['refused']} refused, none in the log"
    show_result("late writes of the stopped leader", refused)
    rest = f"{outcomes['unanswered']} unanswered, {outcomes['unknown']} not known"
    show_result("writes without an acknowledgement", f"{outcomes['refused']} refused, none in the log; {rest}")
    keys = len(next(iter(states.values())))
    show_result("replicas", f"{', '.join(sorted(states))} end equal, {keys} keys, and as the log")
    table = Table("leader", "epoch", "from offset", "takeover", title="The leaders", title_justify="left")
    for reign in cluster.reigns:
        takeover = f"{reign.takeover_s:.2f} s" if reign.epoch else ""
        table.add_row(reign.node, str(reign.epoch), f"{reign.next_offset:,}", takeover)
    console.print()
    console.print(table)
    console.print(f"\nA takeover waits until the old leader's lease of {LEASE_MS / 1000:.0f} s has lapsed.")


if __name__ == "__main__":
    sys.exit(main())
