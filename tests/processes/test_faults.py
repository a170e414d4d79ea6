"""Real servers on real stores, killed and frozen at random, behind a network that loses what it carries.

Rule: whatever happens, the log agrees with every answer that was given. What was acknowledged is where the answer said,
once. What was refused is nowhere. What is not known is there once or not at all. No offset is missing.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from fenceline.adapters.aws.dynamodb import DynamoItemStore, dynamodb_client
from fenceline.adapters.aws.s3 import S3ObjectStore
from fenceline.format.segment import decode_stored
from fenceline.log import replay
from fenceline.log.context import Context
from fenceline.log.topics import get
from fenceline.recovery.verify import verify_partition
from fenceline.runtime import ThreadRuntime
from tests.servers.install import CannotInstall
from tests.servers.proxy import Faults, Proxy, proxied
from tests.servers.run import CREDENTIALS, REGION, dynamodb_local, ministack, versitygw
from tests.support.patience import PATIENCE_S

SERVERS = 4
PARTITIONS = 2
LONGEST_S = 600.0  # at most, on a slow machine
ANSWER_S = 25  # longer than a server works on a request
BUCKET, TABLE = "fenceline-faults", "fenceline-faults"
STORES = ["--objects", f"s3://{BUCKET}/log", "--items", f"dynamodb://{TABLE}"]

FAR_S = 0.02  # for a request to the objects, so that servers offer batches to each other
OBJECT_FAULTS = Faults(reset=0.01, hold=0.008, drop=0.01, delay=0.03)
ITEM_FAULTS = Faults(reset=0.01, drop=0.01, delay=0.03)
OF_OBJECTS, OF_ITEMS = ("reset", "hold", "drop", "delay"), ("reset", "drop", "delay")  # the kinds of each

# What a run meets before it ends; of faults, of each kind.
LEAST = {
    **dict.fromkeys(("acknowledged", "read"), 150),
    **dict.fromkeys(("refused", "retries"), 1),
    **dict.fromkeys(("deaths", "freezes"), 4),
    **dict.fromkeys(("faults of objects", "faults of items"), 1),
    "object faults in all": 12,
    "offered": 60,
}
MANY = {name: 4 * count for name, count in LEAST.items()}
# A server beside its objects offers nothing.
NEAR = {name: count for name, count in LEAST.items() if name != "offered"}

pytestmark = pytest.mark.slow


class Server:
    """A ``fenceline dev`` on the stores; started again on another port after each death."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self.url = ""
        self.deaths = self.freezes = 0

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "fenceline_cli.main", "dev", *STORES, "--port", "0", *options]
        # The stores may fail it at start, too. Its operator then starts it again.
        while not self.url:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._environment
            )
            assert self.process.stdout is not None
            assert self.process.stderr is not None
            line = self.process.stdout.readline()
            if line:
                self.url = line.split()[-1]
                continue
            printed = self.process.stderr.read().splitlines()
            assert len(printed) == 1, printed  # one clear line
            assert "store" in printed[0], printed
            self._reap()

    def kill(self) -> None:
        self.url = ""
        self.deaths += 1
        self.process.kill()
        self._reap()

    def freeze(self, seconds: float, is_over: threading.Event) -> None:
        self.freezes += 1
        self.process.send_signal(signal.SIGSTOP)
        is_over.wait(seconds)
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reap()

    def _reap(self) -> None:
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@dataclass
class Answers:
    """The answers that the clients got about one partition, all clients together."""

    at: dict[str, int] = field(default_factory=dict)  # acknowledged value -> offset
    unknown: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    batches: list[tuple[str, ...]] = field(default_factory=list)
    next_offset: int = 0  # after the highest acknowledged offset
    seen: dict[int, str] = field(default_factory=dict)  # value by offset, as readers saw it
    retries: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, values: tuple[str, ...], base: int) -> None:
        with self.lock:
            self.batches.append(values)
            for offset, value in enumerate(values, base):
                assert self.at.setdefault(value, offset) == offset, f"acknowledged at two offsets: {value}"
            self.next_offset = max(self.next_offset, base + len(values))


class Fleet:
    """The servers, and the clients' threads."""

    def __init__(self, servers: list[Server], was_hard: Callable[[Fleet], bool]) -> None:
        self.servers = servers
        self.answers = [Answers() for _ in range(PARTITIONS)]
        self._was_hard = was_hard
        self.over = threading.Event()
        self._client = httpx.Client(timeout=ANSWER_S)

    @property
    def is_over(self) -> bool:
        """Return True if the clients should end."""
        return self.over.is_set()

    def run(self, *clients: Callable[[Fleet, random.Random], None], seed: int) -> None:
        def work(number: int) -> None:
            try:
                clients[number](self, random.Random(f"{seed}/{number}"))
            except BaseException:
                self.over.set()  # end of the other threads
                raise

        with self._client, ThreadPoolExecutor(len(clients)) as pool:
            working = [pool.submit(work, number) for number in range(len(clients))]
            try:
                self._wait()
            finally:
                self.over.set()
        for done in working:
            done.result()

    def _wait(self) -> None:
        """Return once the run met enough."""
        until = time.monotonic() + LONGEST_S
        while not self.over.wait(0.5) and time.monotonic() < until and not self._was_hard(self):
            pass

    def ask(self, chance: random.Random, method: str, path: str, **options: Any) -> httpx.Response | None:
        """Ask one of the servers; return ``None`` if it died or was silent."""
        url = chance.choice(self.servers).url
        if not url:
            return None
        try:
            return self._client.request(method, f"{url}/v1/topics/t{path}", **options)
        except httpx.TransportError:
            return None


def is_passing(answer: httpx.Response | None) -> bool:
    """Return True if the same request should be sent again: its outcome is not known, or nothing was done."""
    if answer is None:
        return True
    if answer.is_success:
        return False
    problem = answer.json()
    return problem["next_step"] in ("retry", "check")


def writer(producer_id: int, partition: int) -> Callable[[Fleet, random.Random], None]:
    """Write as an idempotent producer: one batch at a time, repeated until it is acknowledged (promise 4)."""

    def work(fleet: Fleet, chance: random.Random) -> None:
        answers, sequence = fleet.answers[partition], 0
        while not fleet.is_over:
            values = tuple(f"w{producer_id}/{sequence + n}" for n in range(chance.randint(1, 4)))
            producer = {"producer_id": producer_id, "producer_epoch": 0, "sequence": sequence}
            body = {"records": [{"value": value} for value in values], "producer": producer}
            answer = None
            while is_passing(answer):
                if fleet.is_over:
                    answers.unknown |= set(values)
                    return
                answer = fleet.ask(chance, "POST", f"/partitions/{partition}/records", json=body)
                answers.retries += is_passing(answer)
            assert answer is not None
            assert answer.status_code == 200, answer.text
            answers.acknowledge(values, answer.json()["base_offset"])
            sequence += len(values)

    return work


def racer(name: str, partition: int) -> Callable[[Fleet, random.Random], None]:
    """Append where it believes the end to be, without a producer: each value is sent once (promise 2)."""

    def work(fleet: Fleet, chance: random.Random) -> None:
        answers, expected, count = fleet.answers[partition], 0, 0
        while not fleet.is_over:
            value, count = f"{name}/{count}", count + 1
            body = {"records": [{"value": value}], "expected_offset": expected}
            answer = fleet.ask(chance, "POST", f"/partitions/{partition}/records", json=body)
            if answer is not None and answer.status_code == 200:
                assert answer.json()["base_offset"] == expected
                answers.acknowledge((value,), expected)
                expected += 1
                continue
            if answer is None or answer.json()["next_step"] == "check":
                answers.unknown.add(value)
            # `fix` and `retry` promise that nothing was written.
            else:
                answers.refused.add(value)
                if answer.status_code == 412:
                    assert answer.json()["next_offset"] != expected, answer.text
                    expected = answer.json()["next_offset"]
                    continue
                assert answer.json()["next_step"] == "retry", answer.text
            offsets = fleet.ask(chance, "GET", f"/partitions/{partition}/offsets")
            if offsets is not None and offsets.is_success:
                expected = offsets.json()["next_offset"]

    return work


def reader(fleet: Fleet, chance: random.Random) -> None:
    """Read, from any server, what was acknowledged before the request; it must never change."""
    position = [0] * PARTITIONS
    while not fleet.is_over:
        partition = chance.randrange(PARTITIONS)
        answers = fleet.answers[partition]
        acknowledged = answers.next_offset
        start = chance.choice((position[partition], chance.randint(0, position[partition])))
        query = {"offset": start, "max_records": 200}
        answer = fleet.ask(chance, "GET", f"/partitions/{partition}/records", params=query)
        if is_passing(answer):
            continue
        assert answer is not None
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert page["next_offset"] >= acknowledged, "a read does not see what was acknowledged before it"
        for offset, record in enumerate(page["records"], start):
            assert record["offset"] == offset
            assert answers.seen.setdefault(offset, record["value"]) == record["value"], f"offset {offset} changed"
        position[partition] = max(position[partition], page["position"])


def trouble(fleet: Fleet, chance: random.Random) -> None:
    """Kill and freeze servers; start again, meanwhile, those that were killed."""
    with ThreadPoolExecutor(SERVERS) as pool:
        starting: dict[Server, Future[None]] = {}
        fates: list[str] = []
        while not fleet.is_over:
            time.sleep(chance.uniform(0.2, 1.5))
            ready = [server for server in fleet.servers if server not in starting or starting[server].done()]
            if len(ready) < SERVERS / 2:
                continue
            server = chance.choice(ready)
            if server in starting:
                starting.pop(server).result()
            fates = fates or chance.sample(["kill", "freeze"], 2)
            if fates.pop() == "kill":
                server.kill()
                starting[server] = pool.submit(server.start)
            else:
                server.freeze(chance.uniform(0.5, 7), fleet.over)
        for started in starting.values():
            started.result()


@dataclass
class Places:
    objects: str
    items: str


@contextmanager
def places(name: str) -> Iterator[Places]:
    with ExitStack() as stack:
        try:
            if name == "ministack":
                url = stack.enter_context(ministack())
                yield Places(url, url)
            else:
                yield Places(stack.enter_context(versitygw()), stack.enter_context(dynamodb_local()))
        except CannotInstall as error:
            if os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1":
                raise
            pytest.skip(f"not run on {name}: {error}")


@contextmanager
def context_on(place: Places) -> Iterator[Context]:
    runtime = ThreadRuntime(8)
    objects = S3ObjectStore(BUCKET, "log", endpoint_url=place.objects, region=REGION)
    items = DynamoItemStore(TABLE, client=dynamodb_client(endpoint_url=place.items, region=REGION))
    try:
        yield Context(objects, items, runtime, "local")
    finally:
        objects.close()
        items.close()


@pytest.mark.parametrize(
    ("name", "least", "far_s"),
    [
        ("versitygw and DynamoDB Local", LEAST, FAR_S),
        pytest.param("versitygw and DynamoDB Local", MANY, FAR_S, marks=pytest.mark.prove),
        pytest.param("ministack", NEAR, 0.0, marks=pytest.mark.prove),
    ],
    ids=["real", "real, long", "ministack"],
)
def test_every_answer_agrees_with_the_log_under_deaths_freezes_and_losses(
    name: str, least: Mapping[str, int], far_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promises 1, 2, 4 and 5, and I16, through four servers on one bucket and one table."""
    for variable, value in CREDENTIALS.items():
        monkeypatch.setenv(variable, value)
    with ExitStack() as stack:
        place = stack.enter_context(places(name))
        objects = stack.enter_context(proxied(place.objects, seed=1, request_delay_s=far_s))
        items = stack.enter_context(proxied(place.items, seed=2))
        urls = {"AWS_ENDPOINT_URL_S3": objects.url, "AWS_ENDPOINT_URL_DYNAMODB": items.url}
        servers = [Server({**os.environ, **urls}) for _ in range(SERVERS)]
        try:
            with ThreadPoolExecutor(SERVERS) as pool:
                list(pool.map(lambda server: server.start("--create"), servers))
            created = httpx.post(
                f"{servers[0].url}/v1/topics", json={"name": "t", "partitions": PARTITIONS}, timeout=PATIENCE_S
            )
            created.raise_for_status()
            context = stack.enter_context(context_on(place))
            fleet = Fleet(servers, lambda fleet: not lacking(least, fleet, objects, items, context))
            objects.faults, items.faults = OBJECT_FAULTS, ITEM_FAULTS
            writers = [writer(n, n % PARTITIONS) for n in range(5)]
            fleet.run(*writers, racer("r", 1), racer("s", 1), reader, trouble, seed=20)
        finally:
            for server in servers:
                server.end()
        for partition in range(PARTITIONS):
            compare(fleet.answers[partition], in_log(context, partition))
            verified = verify_partition(context, get(context, "t").topic, partition)
            assert verified.broken_at is None, verified.problem
        lacks = lacking(least, fleet, objects, items, context)
    assert not lacks, f"it met too little to prove anything: {lacks}"


def in_log(context: Context, partition: int) -> dict[int, str]:
    """Return every record, read from the segments themselves."""
    found: dict[int, str] = {}
    topic_id = get(context, "t").topic.topic_id
    for _, segment in replay.segments(context, topic_id, partition, 0):
        for at, _ in segment.batches:
            for record in decode_stored(segment, at):
                assert record.offset not in found
                assert record.value is not None
                found[record.offset] = record.value.decode()
    return found


def in_offers(context: Context, partition: int) -> int:
    """Return how many batches were committed as offers."""
    topic_id = get(context, "t").topic.topic_id
    return sum(len(segment.metadata.offers) for _, segment in replay.segments(context, topic_id, partition, 0))


def compare(answers: Answers, log: dict[int, str]) -> None:
    assert sorted(log) == list(range(len(log))), "offsets have a gap"
    for value, offset in answers.at.items():
        assert log.get(offset) == value, f"acknowledged and not there: {value} at {offset}"
    assert [value for value, n in Counter(log.values()).items() if n > 1] == [], "stored twice"
    assert set(log.values()) - answers.at.keys() <= answers.unknown, "no client can have written this"
    assert not answers.refused & set(log.values()), "refused, and yet there"
    for offset, value in answers.seen.items():
        assert log.get(offset) == value, f"a reader was shown what is not there: {value} at {offset}"


def lacking(least: Mapping[str, int], fleet: Fleet, objects: Proxy, items: Proxy, context: Context) -> dict[str, int]:
    """Return what the run has met too little of, with how often it was met."""
    met = {
        "acknowledged": sum(len(answers.at) for answers in fleet.answers),
        "refused": sum(len(answers.refused) for answers in fleet.answers),
        "retries": sum(answers.retries for answers in fleet.answers),
        "read": sum(len(answers.seen) for answers in fleet.answers),
        "deaths": sum(server.deaths for server in fleet.servers),
        "freezes": sum(server.freezes for server in fleet.servers),
        "faults of objects": min(objects.met[kind] for kind in OF_OBJECTS),
        "object faults in all": objects.met.total(),
        "faults of items": min(items.met[kind] for kind in OF_ITEMS),
    }
    lacks = {name: count for name, count in met.items() if count < least[name]}
    if lacks or "offered" not in least:
        return lacks
    # Asked last, because the whole log is read for it.
    offered = sum(in_offers(context, partition) for partition in range(PARTITIONS))
    return {"offered": offered} if offered < least["offered"] else {}
