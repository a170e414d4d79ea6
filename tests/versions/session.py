"""One scripted session against the tree that ``PYTHONPATH`` names: what it answers and what it stores, as JSON lines.

Rule: time and chance are the session's own, and one thread does all. So two runs of one version print the same lines.
The script uses only what every version has: the gateway's events, the settings, the commands, and the stores' files.

Not here: how two versions are compared; see ``static``.
"""

from __future__ import annotations

import base64
import json
import random
import re
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fenceline
from fenceline.adapters.sqlite.directory import SqliteObjectStore, open_directory
from fenceline.runtime import ThreadRuntime
from fenceline.settings import PeerSettings, Settings
from fenceline_http import dispatch, wiring

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
BATCH = "application/vnd.apache.kafka.records; version=2"
TABLES = {
    "objects": "SELECT key, modified_at, metadata, hex(body) FROM objects JOIN bodies USING (id)",
    "items": "SELECT partition, sort, version, value FROM items",
}
WRONG: Sequence[Any] = (None, -2, 1.5, "no such", True, [], {})  # given for each member of a body in turn


class Waiting(threading.Condition):
    """A condition on which time passes at once where no other thread would notify it."""

    has_others = False  # True while a command with threads runs

    def wait(self, timeout: float | None = None) -> bool:
        if Waiting.has_others:
            return super().wait(timeout)
        assert timeout is not None
        Clock.pass_ms(timeout * 1000)
        return False


class Clock:
    """Time and chance of all processes in this session."""

    passed_ms = 0.0
    ids = 0
    chance = random.Random(0)

    @classmethod
    def begin(cls, part: int) -> None:
        """Begin a part of the session at a time, an id and a chance of its own, whatever the parts before it took."""
        cls.passed_ms, cls.ids, cls.chance = part * DAY_MS / 24, part << 32, random.Random(part)

    @classmethod
    def pass_ms(cls, duration_ms: float) -> None:
        cls.passed_ms += max(duration_ms, 1)

    @classmethod
    def next_id(cls) -> str:
        cls.ids += 1
        return f"{cls.ids:032x}"

    @classmethod
    def install(cls) -> None:
        begin = ThreadRuntime.__init__
        made: dict[str, Any] = {
            "__init__": lambda runtime, parallel=1: begin(runtime, 1),
            "now_ms": lambda _: START_MS + int(cls.passed_ms),
            "monotonic_ms": lambda _: 5_000 + int(cls.passed_ms),
            "sleep_ms": lambda _, duration_ms: cls.pass_ms(duration_ms),
            "random": lambda _: cls.chance.random(),
            "fresh_id": lambda _: cls.next_id(),
            "fresh_version": lambda _: cls.chance.getrandbits(62),
            "condition": lambda _, lock=None: Waiting(lock),
        }
        for name, method in made.items():
            setattr(ThreadRuntime, name, method)


class Region:
    """One region: a directory, two processes that work on it, and an address for its peer and the commands."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory
        region = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                path, _, query = self.path.partition("?")
                headers = {key.lower(): value for key, value in self.headers.items()}
                if path.startswith("/objects/"):
                    answer: Any = (200, {}, region.logs[0].objects.get(unquote(path.removeprefix("/objects/"))).body)
                else:
                    answer = region.ask(self.command, path, query, headers, body)
                self.send_response(answer[0])
                for key, value in {**answer[1], "content-length": str(len(answer[2]))}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(answer[2])

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815  as the server calls them

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        for store in open_directory(directory, now_ms=lambda: START_MS, secret=b"secret"):
            store.close()
        self.tables = {name: sqlite3.connect(directory / f"{name}.sqlite3") for name in TABLES}
        self.rows: dict[str, set[str]] = {}
        self.versions: dict[str, int] = {}
        list(self.changed())

    def lose_items(self) -> None:
        """Delete the file of the items."""
        self.tables["items"].close()
        for file in self.directory.glob("items.sqlite3*"):
            file.unlink()
        for store in open_directory(self.directory, now_ms=lambda: START_MS):
            store.close()
        self.tables["items"] = sqlite3.connect(self.directory / "items.sqlite3")

    def open(self, *others: Region) -> None:
        peers = tuple(PeerSettings(other.name, f"http://{other.address}") for other in others)
        settings = Settings(str(self.directory), region=self.name, item_age_ms=0, peers=peers)
        self.logs = [wiring.service_of(settings) for _ in range(2)]

    def close(self) -> None:
        for log in self.logs:
            log.close()

    def ask(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes, who: str = "", log: int = 0
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the answer to one event of a gateway."""
        context: dict[str, Any] = {"http": {"method": method, "path": path}, "timeEpoch": START_MS + Clock.passed_ms}
        context |= {"stage": "$default", "domainName": headers.get("host", "log.test")}
        if who:
            context["authorizer"] = {"iam": {"userArn": who}}
        event: dict[str, Any] = {"version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": query}
        event |= {"headers": {"x-forwarded-proto": "http", **headers}, "requestContext": context}
        event |= {"body": base64.b64encode(body).decode() if body else None, "isBase64Encoded": bool(body)}
        response: dict[str, Any] = dispatch.respond(None, event, self.logs[log]).to_event()
        text = response["body"] or ""
        return (
            response["statusCode"],
            response["headers"],
            base64.b64decode(text) if response["isBase64Encoded"] else text.encode(),
        )

    def changed(self) -> Iterator[str]:
        """Yield each row of the stores that came or went since the last call."""
        for table, query in TABLES.items():
            connection = self.tables[table]
            [version] = connection.execute("PRAGMA data_version").fetchone()
            if version == self.versions.get(table):
                continue
            self.versions[table] = version
            before, rows = self.rows.get(table, set()), {json.dumps(row) for row in connection.execute(query)}
            yield from (f"- {self.name} {row}" for row in sorted(before - rows))
            yield from (f"+ {self.name} {row}" for row in sorted(rows - before))
            self.rows[table] = rows


class Session:
    """The session: each step is printed with its answer, and with what it left in the stores."""

    def __init__(self, directory: Path) -> None:
        self.a, self.b = Region("a", directory / "a"), Region("b", directory / "b")
        self.a.open(self.b)
        self.b.open(self.a)
        self.bodies: dict[tuple[str, str], Any] = {}  # one body that was accepted, by method and path
        self.rivals: list[Callable[[], object]] = []  # what another process does right before the next creates
        create = SqliteObjectStore.create

        def contended(store: SqliteObjectStore, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
            if key.startswith("log/"):
                Clock.pass_ms(30)
                rivals, self.rivals = self.rivals, []  # none is in the way of a rival itself
                if rivals:
                    rivals.pop()()
                self.rivals = rivals
            create(store, key, body, metadata)

        setattr(SqliteObjectStore, "create", contended)  # noqa: B010  mypy refuses an assignment

    def note(self, step: str, value: object) -> None:
        stored = [row for region in (self.a, self.b) for row in region.changed()]
        line = json.dumps([step[:300], value, stored], ensure_ascii=False)
        for region in (self.a, self.b):
            line = line.replace(region.address, f"127.0.0.1:{region.name}")
        print(re.sub(rf"(?<![\d.]){re.escape(fenceline.__version__)}(?![\d.])", "VERSION", line))

    def call(
        self,
        request: str,
        value: Any = None,
        *,
        at: Region | None = None,
        log: int = 0,
        who: str = "",
        body: bytes = b"",
        **headers: str,
    ) -> Any:
        """Make one request, such as ``GET /v1/topics?limit=1``; return what its JSON means, or its bytes."""
        at = at or self.a
        method, _, target = request.partition(" ")
        path, _, query = target.partition("?")
        body = json.dumps(value).encode() if value is not None else body
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        status, shown, answer = at.ask(method, path, query, named, body, who, log)
        text: Any = answer.decode("latin-1")
        if path.endswith("/openapi.json"):
            text = in_order(json.loads(answer))
        self.note(f"{at.name} {request} {value or ''} {named or ''}", [status, shown, text])
        if status < 300 and isinstance(value, dict):
            self.bodies.setdefault((method, path), value)
        return json.loads(answer) if "json" in shown.get("content-type", "") else answer

    def pull(self) -> None:
        """Let seconds pass, in each of which each region takes what the other has."""
        for _ in range(8):
            for region in (self.a, self.b):
                replication = region.logs[0].log.replication
                for place in list(replication.partitions()):
                    replication.run(*place)
            Clock.pass_ms(1_000)
        self.note("pull", None)

    def run(self, command: str, given: str = "", *, at: Region | None = None) -> None:
        """Run one command of the command line; ``given`` is what it reads."""
        from typer.testing import CliRunner

        from fenceline_cli.main import app

        at = at or self.a
        command = command.replace("DIR", str(at.directory))
        urls = {"URL_A": f"http://{self.a.address}", "URL_B": f"http://{self.b.address}"}
        for name, url in urls.items():
            command = command.replace(name, url)
        Waiting.has_others = command.startswith(("consume", "produce"))
        result = CliRunner().invoke(app, command.split(), given, env={"FENCELINE_URL": f"http://{at.address}"})
        Waiting.has_others = False
        shown = (result.stdout + result.stderr).replace(str(at.directory), "DIR")
        self.note(f"{at.name} fenceline {command.replace(str(at.directory), 'DIR')}", [result.exit_code, shown])

    def close(self) -> None:
        for region in (self.a, self.b):
            region.close()
            region.server.shutdown()
            region.server.server_close()


def records(*values: str | None, **others: Any) -> dict[str, Any]:
    return {"records": [{"key": "k", "value": value} for value in values], **others}


def play_log(s: Session) -> None:
    """Topics and records: every form of produce and read, retention, compaction, and deletion."""
    p0, prices = "/v1/topics/orders/partitions/0", "/v1/topics/prices/partitions/0"
    s.call("POST /v1/topics", {"name": "orders", "partitions": 2, "config": {"retention.ms": DAY_MS}})
    s.call("POST /v1/topics", {"name": "prices", "config": {"cleanup.policy": "compact"}})
    s.call("POST /v1/topics", {"name": "dated", "config": {"message.timestamp.type": "LogAppendTime"}})
    s.call("PATCH /v1/topics/orders", {"partitions": 3, "config": {"max.message.bytes": 100_000}})
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        s.call("POST /v1/topics", {"name": codec, "config": {"compression.type": codec}})
        s.call(f"POST /v1/topics/{codec}/partitions/0/records", records("1" * 200))
    one = s.call(f"POST {p0}/records", records("1", None, expected_offset=0))
    s.call(f"POST {p0}/records", records("2", expected_offset=one["base_offset"]))
    s.call(f"POST {p0}/records", {"records": [{"value": "AAE="}], "encoding": "base64", "acks": 0})
    s.call("POST /v1/topics/dated/partitions/0/records", records("3"))
    producer = s.call("POST /v1/producer-ids", {})
    for sequence in (0, 0, 1, 5):
        s.call(f"POST {p0}/records", records("4", producer={**producer, "sequence": sequence}))
    batch = s.call(f"GET {p0}/batches?offset=0&max_records=1")
    s.call(f"POST {p0}/batches?acks=-1", body=batch)
    s.call(f"POST {p0}/records", body=batch, content_type=BATCH)
    s.call(f"POST {p0}/batches", body=batch[:-1] + b"x")
    entries = [{"topic": "orders", "partition": number, **records("5")} for number in (0, 1, 9)]
    s.call("POST /v1/produce", {"partitions": entries})
    s.call("POST /v1/topics/orders/records", {"records": [{"key": key, "value": "6"} for key in "abcd"]})
    for query in ("records?offset=0", "records?tail_offset=2&identity=true", "records?timestamp=0&encoding=base64"):
        s.call(f"GET {p0}/{query}")
    for query in ("records?offset=99", "records?offset=0&max_records=1&isolation=read_committed", "offsets"):
        s.call(f"GET {p0}/{query}")
    end = s.call(f"GET {p0}/offsets")["next_offset"]
    s.call(f"GET {p0}/records?offset={end}&wait_ms=500")
    looks = ("offset-for-time?timestamp=0", "segments?offset=0&limit=2", "segments?origin=own", "producer-states")
    for query in (*looks, "verify?limit=2"):
        s.call(f"GET {p0}/{query}")
    s.call("GET /v1/topics/orders/offsets?limit=2")
    s.call("GET /v1/topics/orders/offsets-for-time?timestamp=0")
    for value in ("7", "8", None, "9"):
        s.call(f"POST {prices}/records", records(value))
    for _ in range(2):
        s.call(f"POST {prices}/compact", {})
        s.run("compact --data DIR prices --region a --json")
        s.call(f"GET {prices}/records?offset=0&compacted=true")
        s.call(f"POST {prices}/records", records("10"))
    s.call(f"POST {p0}/trim", {"before_offset": 2})
    s.call("POST /v1/topics", {"name": "gone"})
    s.call("POST /v1/topics/gone/partitions/0/records", records("11"))
    s.call("DELETE /v1/topics/gone")
    s.call("POST /v1/topics", {"name": "gone"})
    for path in ("topics?limit=3", "topics?prefix=o", "topics/orders", "topics/none", "health", "openapi.json"):
        s.call(f"GET /v1/{path}")
    for path in ("/", "/docs", "/docs/errors", "/none"):
        s.call(f"GET {path}")
    for number in range(40):  # a checkpoint, and a fold by the other process
        s.call("POST /v1/topics/orders/partitions/1/records", records(f"n{number}"), log=number % 2)


def play_access(s: Session) -> None:
    """Sessions, producers in each mode, waiting and fencing; owners of resources and locks."""
    producers = "/v1/topics/orders/producers"
    one, two, three = (s.call("POST /v1/sessions", {"lease_ms": 60_000, "client_name": n})["session_id"] for n in "xyz")
    for mode, session, name in (
        ("Shared", one, "ann"),
        ("Exclusive", two, "bob"),
        ("WaitForExclusive", two, "bob"),
        ("WaitForExclusive", three, "cid"),
    ):
        claim = {"access_mode": mode, "partitions": [0], "producer_name": name, "session_id": session}
        s.call(f"POST {producers}", claim)
    s.call(f"GET {producers}/bob?session_id={two}")
    s.call(f"DELETE {producers}/ann?session_id={one}")
    answer = s.call(f"GET {producers}/bob?session_id={two}")
    epochs = answer["producer"]["topic_epochs"]
    named = {"session_id": two, "topic_epoch": epochs.get("0", 0)}
    s.call("POST /v1/topics/orders/partitions/0/records", records("held", session=named))
    s.call("POST /v1/topics/orders/partitions/0/records", records("refused"))
    s.call(f"POST {producers}", {"access_mode": "ExclusiveWithFencing", "partitions": [0, 1], "session_id": one})
    s.call("POST /v1/topics/orders/partitions/0/records", records("fenced", session=named))
    s.call(f"POST {producers}", {"access_mode": "Exclusive", "session_id": two, "topic_epochs": epochs})
    s.call(f"GET {producers}?limit=2")
    s.call(f"GET {producers}/cid?session_id={three}&wait_ms=100")
    for generation in (1, 1, 2):
        owned = [{"resource": "orders/0", "generation": generation}, {"resource": "a lock", "generation": generation}]
        s.call("POST /v1/own", {"session_id": (one, two)[generation - 1], "group": "billing", "resources": owned})
    s.call("POST /v1/own", {"session_id": three, "resources": [{"resource": "orders/2"}]})
    s.call("GET /v1/own?resource=orders/0&group=billing")
    s.call(f"GET /v1/topics/orders/partitions/0/records?offset=2&group=billing&session_id={one}")
    s.call("POST /v1/own/release", {"session_id": two, "group": "billing", "resources": ["orders/0"]})
    for path in ("sessions?limit=2", "locks", "topics/orders/access?limit=2"):
        s.call(f"GET /v1/{path}")
    s.call("GET /v1/topics/orders/partitions/0/markers?limit=2")
    for session in (one, two, three):
        s.call(f"POST /v1/sessions/{session}/heartbeat", {})
        s.call(f"GET /v1/sessions/{session}")
    s.call("POST /v1/sessions", {}, who="arn:aws:iam::1:user/ann")
    for path in ("topic list", "topic describe orders", "offsets orders", "producers list orders"):
        s.run(f"{path} --json")
    s.run("own orders/0 --group billing --show --json")
    for session in (one, three):
        s.call(f"DELETE /v1/sessions/{session}")
    Clock.pass_ms(300_000)
    s.call(f"GET /v1/sessions/{three}")
    s.run("sweep --data DIR --region a --json")


def play_groups(s: Session) -> None:
    """Subscriptions and groups: cursors, acknowledgements apart and in order, committed offsets."""
    billing = "/v1/topics/orders/subscriptions/billing"
    s.call(f"PUT {billing}", {"initial_position": "earliest"})
    s.call("PUT /v1/topics/orders/subscriptions/late", {})
    s.call(f"GET {billing}/records?partition=1&max_records=3")
    s.call(f"POST {billing}/acknowledgements", {"partition": 1, "cumulative": 2})
    s.call(f"POST {billing}/acknowledgements", {"partition": 1, "individual": [*range(5, 30, 2)]})
    s.call(f"GET {billing}/seek?partition=0&timestamp=0")
    s.call(f"POST {billing}/seek", {"partition": 0, "timestamp": 0})
    s.call("POST /v1/groups/batch/offsets", {"offsets": [{"topic": "orders", "partition": 1, "offset": 3}]})
    named = {"offset": 4, "metadata": "m", "topic": "orders", "partition": 1}
    s.call("POST /v1/groups/batch/offsets", {"offsets": [named]})
    for path in ("groups/batch/offsets", "topics/orders/subscriptions?limit=2"):
        s.call(f"GET /v1/{path}")
    s.call(f"GET {billing}")
    wide = "/v1/topics/wide/subscriptions/billing"
    s.call("POST /v1/topics", {"name": "wide"})
    s.call("POST /v1/topics/wide/partitions/0/records", records(*["w"] * 9_000))
    s.call(f"PUT {wide}", {"initial_position": "earliest"})
    for start in (1, 3):
        s.call(f"POST {wide}/acknowledgements", {"partition": 0, "individual": [*range(start, 9_000, 6)]})
    s.call(f"GET {wide}?limit=1&start_offset=8000")
    s.run("subscription list orders --json")
    for path in ("subscriptions?topic=orders", "subscriptions?limit=1"):
        s.call(f"GET /v1/{path}")
    for path in ("topics?totals=true", "topics/orders/offsets?counts=true"):
        s.call(f"GET /v1/{path}")
    s.run("consume orders --partition 1 --from earliest --json")
    s.run("produce orders --partition 1 --json", "line\n")
    s.call("DELETE /v1/topics/orders/subscriptions/late")
    positions: list[Any] = [{"topic": "orders", "partition": number, "offset": 0} for number in (1, 0, 7)]
    positions.append({"topic": "wide", "partition": 0, "subscription": "billing"})
    s.call("POST /v1/poll", {"positions": positions, "max_records": 5_000, "wait_ms": 100})
    s.call("POST /v1/poll", {"positions": [{**positions[0], "topic_id": "no such id"}]})


def play_members(s: Session) -> None:
    """Groups with members: they join, hand partitions over, commit what they hold, leave, and are deleted."""
    group = "/v1/groups/shared"
    joining = {"member_epoch": 0, "topics": ["orders"], "topic_prefixes": ["wid"], "initial_position": "earliest"}
    static = {**joining, "instance_id": "worker-2", "client_name": "w", "session_timeout_ms": 6_000}
    members = {"a": s.call(f"POST {group}/members/a", joining)}
    Clock.pass_ms(1_000)
    static = {**static, "rebalance_timeout_ms": 60_000, "assignor": "uniform"}
    members["b"] = s.call(f"POST {group}/members/b", static)
    for _ in range(3):
        Clock.pass_ms(1_000)
        members = {name: s.call(f"POST {group}/members/{name}", _report(one)) for name, one in members.items()}
    s.call(f"GET {group}")
    for name, one in members.items():
        who = {"member_id": name, "member_epoch": one.get("member_epoch", 0)}
        for number in (0, 1):
            offsets = [{"topic": "orders", "partition": number, "offset": 1}]
            s.call(f"POST {group}/offsets", {"offsets": offsets, **who})
    s.call(f"POST {group}/offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]})
    s.call("GET /v1/groups?prefix=sha&limit=1")
    s.call(f"DELETE {group}/members/b?is_coming_back=true")
    s.call(f"GET {group}?limit=1")
    s.call(f"DELETE {group}")
    s.call(f"DELETE {group}/members/a")
    Clock.pass_ms(60_000)
    s.call(f"DELETE {group}")
    s.call(f"DELETE {group}")
    s.call("POST /v1/groups/kept/members/c", joining)


def _report(member: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the heartbeat of a member that works on what the last answer gave it."""
    owned = [
        {"topic": one["topic"], "partitions": [place["partition"] for place in one["partitions"]]}
        for one in member.get("partitions", ())
    ]
    return {"member_epoch": member.get("member_epoch", 1), "owned": owned}


def play_transactions(s: Session) -> None:
    """Transactions: each end, offsets in them, a time-out, joint ends with a version, fences by hand."""
    p1 = "/v1/topics/orders/partitions/1"
    ids = {}
    for name in ("t0", "t1", "t2", "t3"):
        asked = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        ids[name] = s.call("POST /v1/producer-ids", asked, who="arn:aws:iam::1:user/ann" if name == "t3" else "")
    offset = {"offsets": [{"topic": "orders", "partition": 1, "offset": 7}], "group": "batch"}
    for result in ("commit", "abort"):
        pair, at = ids["t0"], "/v1/transactions/t0"
        added = [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]
        s.call(f"POST {at}/partitions", {**pair, "partitions": added})
        s.call(f"POST {p1}/records", records("t", transactional_id="t0", producer={**pair, "sequence": 0}))
        s.call(f"POST {at}/offsets", {**pair, **offset})
        s.call(f"POST {at}/groups", {**pair, "group": "batch"})
        s.call(f"POST {at}/offsets", {**pair, **offset})
        s.call("GET /v1/groups/batch/offsets?topic=orders&require_stable=true")
        s.call(f"POST {at}/extend", {**pair, "timeout_ms": 90_000})
        s.call(f"GET {p1}/producer-states")
        s.call(f"GET {at}")
        for path in ("txn list --json", "txn describe t0 --json"):
            s.run(path)
        once = {"app_id": "job", "version": 1 if result == "commit" else 0, "note": "n"}
        end = {**pair, "result": result, "once": once}
        s.call(f"POST {at}/end", end)
        if result == "abort":  # its version is not above the stored one
            del end["once"]
        ids["t0"] = s.call(f"POST {at}/end", end)
    for name in ("t0", "t1", "t2"):
        answer = s.call("POST /v1/producer-ids", {"transactional_id": name})
        ids[name] = {key: answer[key] for key in ("producer_id", "producer_epoch")}
        s.call(f"POST {p1}/records", records("u", transactional_id=name, producer={**ids[name], "sequence": 0}))
    members = [{"transactional_id": name, **ids[name]} for name in ("t0", "t1")]
    joint = {"transactions": members, "result": "commit", "once": {"app_id": "job", "version": 2}}
    for _ in range(2):
        s.call("POST /v1/transactions/end", joint)
    s.call("POST /v1/transactions/end", {**joint, "result": "abort"})
    for path in (
        "once",
        "topics/orders/open-transactions",
        "once/job",
        "coordinators/group/batch",
        "coordinators/transaction/t0",
        "transactions?limit=2",
    ):
        s.call(f"GET /v1/{path}")
    s.call("DELETE /v1/once/job")
    s.call("GET /v1/operator/transactions?state=Ongoing")
    s.call("POST /v1/operator/transactions/t2/fence")
    for path, named in (
        (f"{p1}/abort-transaction", {}),
        ("/v1/operator/abort-transaction", {"topic": "orders", "partition": 1}),
    ):
        pair = s.call("POST /v1/producer-ids", {"transactional_id": "lost"})
        s.call(f"POST {p1}/records", records("h", transactional_id="lost", producer={**pair, "sequence": 0}))
        with s.a.tables["items"] as items:  # only damage leaves a transaction that no id can end
            items.execute("DELETE FROM items WHERE partition LIKE 'transactions/%' AND sort = 'lost'")
        for _ in range(2):
            s.call(f"POST {path}", {**named, **pair})
    s.call("GET /v1/transactions/t3", who="arn:aws:iam::1:user/bob")
    pair = s.call("POST /v1/producer-ids", {"transactional_id": "t1"})
    s.call(f"POST {p1}/records", records("v", transactional_id="t1", producer={**pair, "sequence": 0}))
    Clock.pass_ms(100_000)
    s.call(f"GET {p1}/records?offset=40&isolation=read_committed")
    s.call("GET /v1/transactions/t1")


def play_regions(s: Session) -> None:
    """Two regions: records, subscriptions and snapshots travel, links are suspended, and what is gone is skipped."""
    shop = "/v1/topics/shop"
    for region in (s.a, s.b):
        s.call("POST /v1/topics", {"name": "shop", "regions": ["a", "b"]}, at=region)
        s.call(f"POST {shop}/partitions/0/records", records(f"from {region.name}"), at=region)
    billing = {"initial_position": "earliest", "replicate_subscription_state": True}
    s.call(f"PUT {shop}/subscriptions/billing", billing)
    s.pull()
    for region in (s.a, s.b):
        s.call(f"GET {shop}/partitions/0/records?offset=0&identity=true", at=region)
        s.call(f"GET {shop}/partitions/0/segments?origin=own", at=region)
        s.call(f"GET {shop}/replication", at=region)
        s.run("replication status shop --json", at=region)
    s.call(f"POST {shop}/replication/snapshots", {})
    s.pull()
    s.call(f"POST {shop}/subscriptions/billing/acknowledgements", {"partition": 0, "cumulative": 1})
    s.pull()
    s.call(f"PUT {shop}/subscriptions/billing", {"active_region": "b"})
    s.pull()
    s.call(f"GET {shop}/subscriptions/billing", at=s.b)
    s.call(f"POST {shop}/replication/regions/b/suspend", {})
    s.run("regions list shop --json")
    s.run("failover shop billing --from a=URL_A --to b=URL_B --yes --json")
    s.call(f"POST {shop}/partitions/0/records", records(*"abcd"), at=s.b)
    end = s.call(f"GET {shop}/partitions/0/offsets", at=s.b)["next_offset"]
    s.call(f"POST {shop}/partitions/0/trim", {"before_offset": end}, at=s.b)
    s.pull()
    answer = s.call(f"GET {shop}/replication")
    for gap in answer["gaps"] or [{"to_offset": 1}]:
        skip = {"region": "b", "to_offset": gap["to_offset"]}
        s.call(f"POST {shop}/partitions/0/replication/skip", skip)
    s.call(f"POST {shop}/replication/regions/b/resume", {})
    s.pull()
    s.run("verify shop --peer b=URL_B --json")


def play_forms(s: Session) -> None:
    """Give each member of each body that was accepted a wrong value, and each route a query that it does not know."""
    seen = set()
    for (method, path), value in s.bodies.items():
        route = tuple("*" if number % 2 else part for number, part in enumerate(path.split("/")[2:])), *sorted(value)
        if (method, route) in seen:
            continue
        seen.add((method, route))
        s.call(f"{method} {path}?unknown=1", value)
        for form in wrong_forms(value):
            s.call(f"{method} {path}", form)
    for path in ("offsets", "records", "segments", "producer-states"):
        for query in ("offset=-1", "limit=0", "limit=x", "offset=0&offset=0", "wait_ms=99999", "isolation=none"):
            s.call(f"GET /v1/topics/orders/partitions/0/{path}?{query}")


def wrong_forms(value: Any) -> Iterator[Any]:
    """Yield ``value`` with one member missing, unknown or wrong."""
    if isinstance(value, dict):
        yield {**value, "unknown": 1}
        for name, inner in value.items():
            yield {key: one for key, one in value.items() if key != name}
            yield from ({**value, name: form} for form in (*WRONG, *wrong_forms(inner)))
    elif isinstance(value, list) and value:
        yield from ([form, *value[1:]] for form in (*WRONG, *wrong_forms(value[0])))


def play_ends(s: Session) -> None:
    """Let weeks pass: retention, what expires, what is swept; then verify, and make the items anew."""
    for days in (1, 2, 8, 40):
        Clock.pass_ms(days * DAY_MS)
        for region in (s.a, s.b):
            s.run(f"sweep --data DIR --region {region.name} --json", at=region)
    for region in (s.a, s.b):
        region.close()
        s.run(f"verify --data DIR --json --region {region.name}", at=region)
        region.lose_items()
        s.run(f"rebuild --data DIR --region {region.name}", at=region)
        s.run(f"verify --data DIR --json --region {region.name}", at=region)
    s.a.open(s.b)
    s.b.open(s.a)


def play_rivals(s: Session) -> None:
    """Two processes that append to one partition: what one offers, the other one takes along."""
    Clock.pass_ms(100 * DAY_MS)  # after all that went before
    s.call("POST /v1/topics", {"name": "contended"})
    path = "POST /v1/topics/contended/partitions/0/records"
    for number in range(1, 7):
        rival = lambda number=number: s.a.ask(  # noqa: E731
            "POST", path.split()[1], "", {}, json.dumps(records(f"rival{number}")).encode(), log=1
        )
        s.rivals = [rival] * number
        s.call(path, records(f"mine{number}"))
        s.rivals = []


HALVES = (
    (play_log, play_access, play_groups, play_transactions, play_regions, play_members, play_forms),
    (play_ends, play_rivals),
)


def in_order(document: Any, name: str = "") -> Any:
    """Return a document with the lists of required members sorted, because their order means nothing."""
    if isinstance(document, dict):
        return {key: in_order(document[key], key) for key in sorted(document)}
    if isinstance(document, list):
        return sorted(document) if name == "required" else [in_order(one) for one in document]
    return document


def main(directory: Path, half: int) -> None:
    Clock.install()
    if half == 0:
        print(json.dumps(["fenceline.__all__", sorted(fenceline.__all__), []]))
    session = Session(directory)
    try:
        for number, play in enumerate(HALVES[half]):
            Clock.begin(10 * half + number)
            play(session)
    finally:
        session.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
