"""The local server as a process: ready line, signals, long polls, several on one directory."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from fenceline import limits
from fenceline.format.batch import encode
from fenceline.model.record import Record
from tests.support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

SERVE = """
import sys
from fenceline.settings import Settings
from fenceline_cli.dev_server.server import serve
sys.exit(serve(Settings(sys.argv[1], item_age_ms=0), port=int(sys.argv[2]), workers=int(sys.argv[3])))
"""
SLOWLY = """
import time
from fenceline.adapters.sqlite.objects import SqliteObjectStore
create = SqliteObjectStore.create
SqliteObjectStore.create = lambda *arguments: (time.sleep(0.3), create(*arguments))
"""
IN_NO_HURRY = """
from fenceline_cli.dev_server import server
server._GRACE_S = server._WORKERS_STOP_S = 60
"""
RECORDS = "/v1/topics/orders/partitions/0/records"
POLL_MS = 20_000

Start = Callable[..., tuple[subprocess.Popen[str], httpx.Client]]


def spawn(directory: Path, port: int = 0, workers: int = 1, before: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", before + SERVE, str(directory), str(port), str(workers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def started(
            directory: Path | None = None, workers: int = 1, before: str = ""
        ) -> tuple[subprocess.Popen[str], httpx.Client]:
            process = stack.enter_context(spawn(directory or tmp_path / "data", workers=workers, before=before))
            stack.callback(process.kill)
            assert process.stdout is not None
            line = process.stdout.readline()
            match = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert match, line
            return process, stack.enter_context(httpx.Client(base_url=match[0], timeout=PATIENCE_S))

        yield started


def create(client: httpx.Client) -> None:
    assert client.post("/v1/topics", json={"name": "orders", "partitions": 2}).status_code == 201


def produce(client: httpx.Client, value: str = "a", **more: Any) -> int:
    answer = client.post(RECORDS, json={"records": [{"value": value}]}, **more)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["base_offset"])


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def threads(process: subprocess.Popen[str]) -> int:
    """Return how many threads the server and its workers have: each long poll that they hold has one."""
    return sum(len(os.listdir(f"/proc/{pid}/task")) for pid in (process.pid, *workers_of(process)))


@contextlib.contextmanager
def polls(client: httpx.Client, count: int) -> Iterator[list[Future[list[str]]]]:
    """Hold long polls from offset 0 open; each becomes the values that it is answered with."""
    port = client.base_url.port or 0
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S) for _ in range(count)]
    for connection in connections:
        connection.request("GET", f"{RECORDS}?offset=0&wait_ms={POLL_MS}")

    def values(connection: http.client.HTTPConnection) -> list[str]:
        records = json.loads(connection.getresponse().read())["records"]
        return [record["value"] for record in records]

    with ThreadPoolExecutor(count) as pool:
        yield [pool.submit(values, connection) for connection in connections]
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_ends_the_server_in_good_order_with_long_polls_open(
    start: Start, number: signal.Signals, workers: int
) -> None:
    process, client = start(workers=workers, before=IN_NO_HURRY)
    create(client)
    idle = threads(process)
    with polls(client, 20) as waiting:
        began = time.monotonic()
        wait_until(lambda: threads(process) >= idle + 20)
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
        assert time.monotonic() - began < POLL_MS / 1000
        assert process.stdout is not None
        assert process.stdout.read() == f"console: {client.base_url.join('/console')}\n"  # nothing after the two lines
        assert [poll.result(PATIENCE_S) for poll in waiting] == [[]] * 20


def test_long_polls_hold_back_no_produce_and_all_of_them_see_it(start: Start) -> None:
    process, client = start()
    create(client)
    idle = threads(process)
    with polls(client, 200) as waiting:
        wait_until(lambda: threads(process) >= idle + 200)
        for _ in range(20):
            assert client.post("/v1/topics/orders/partitions/1/records", json={"records": [{"value": "a"}]}).is_success
        assert not any(poll.done() for poll in waiting)
        produce(client, "seen")
        assert [poll.result(PATIENCE_S) for poll in waiting] == [["seen"]] * 200


def test_produces_that_wait_together_are_stored_together(start: Start) -> None:
    """Group commit: handlers that were called one by one would make a segment for each request."""
    _, client = start(before=SLOWLY)
    create(client)
    with ThreadPoolExecutor(32) as pool:
        offsets = list(pool.map(lambda n: produce(client, str(n)), range(64)))
    assert sorted(offsets) == list(range(64))
    listed = client.get("/v1/topics/orders/partitions/0/segments", params={"limit": 100}).json()["segments"]
    assert listed[-1]["next_offset"] == 64
    assert len(listed) <= 32


@pytest.mark.parametrize("workers", [1, 2])
def test_servers_and_workers_share_one_directory(start: Start, tmp_path: Path, workers: int) -> None:
    _, one = start(tmp_path / "shared", workers)
    _, other = start(tmp_path / "shared", workers)
    create(one)
    clients = [one, other] * 8
    with ThreadPoolExecutor(16) as pool:
        offsets = list(pool.map(lambda n: produce(clients[n % 16], str(n)), range(100)))
    assert sorted(offsets) == list(range(100))
    for client in (one, other):
        page = client.get(RECORDS, params={"offset": 0}).json()
        values = {record["offset"]: record["value"] for record in page["records"]}
        assert values == {offset: str(n) for n, offset in enumerate(offsets)}


def test_workers_end_with_a_parent_that_was_killed(start: Start) -> None:
    process, client = start(workers=2)
    create(client)
    workers = workers_of(process)
    assert len(workers) == 2
    process.kill()
    process.wait()
    wait_until(lambda: not any(os.path.exists(f"/proc/{worker}") for worker in workers))


def test_a_worker_that_ends_by_itself_ends_the_server_with_an_error(start: Start) -> None:
    process, _ = start(workers=2)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 1
    assert process.stderr is not None
    assert process.stderr.read().startswith("error: a worker process ended by itself")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_port_or_a_directory_that_cannot_be_used_is_one_clear_line(tmp_path: Path, workers: int) -> None:
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for directory, wanted_port, expected in [
            (tmp_path / "data", port, f"error: the server cannot listen on 127.0.0.1:{port}: address already in use"),
            (tmp_path / "file", 0, "error: the server cannot open the data directory"),
            (tmp_path / "file" / "below", 0, "error: the server cannot open the data directory"),
        ]:
            process = spawn(directory, wanted_port, workers)
            out, err = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, out) == (1, "")
            assert err.startswith(expected)
            assert err.count("\n") == 1


def test_a_body_too_large_is_refused_and_the_connection_goes_on(start: Start) -> None:
    _, client = start()
    create(client)
    answer = client.post(RECORDS, content=b"x" * (limits.BODY_BYTES_MAX + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "RECORD_LIST_TOO_LARGE")
    assert "connection" not in answer.headers
    assert produce(client) == 0


@pytest.mark.parametrize("announcement", ["content-length: 999999999999", "transfer-encoding: chunked"])
def test_a_body_without_end_is_refused_without_being_kept(start: Start, announcement: str) -> None:
    process, client = start()
    create(client)
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    before = peak_kib(process.pid)
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=PATIENCE_S) as sender:
        sender.sendall(f"POST {RECORDS} HTTP/1.1\r\nhost: x\r\n{announcement}\r\n\r\n".encode())
        answer = b""
        sending = threading.Thread(target=send_without_end, args=(sender, chunk), daemon=True)
        sending.start()
        while b"\r\n\r\n" not in answer:
            answer += sender.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413")
    assert peak_kib(process.pid) - before < 32 * 1024
    assert produce(client) == 0


def send_without_end(sender: socket.socket, chunk: bytes) -> None:
    with contextlib.suppress(OSError):
        for _ in range(300):
            sender.sendall(chunk)


def peak_kib(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


def test_bytes_go_through_unchanged_both_ways(start: Start) -> None:
    _, client = start()
    create(client)
    every = bytes(range(256)) * 40
    sent = encode([Record(every, every)], now_ms=time.time_ns() // 1_000_000).body
    batch_type = "application/vnd.apache.kafka.records; version=2"
    assert client.post(RECORDS, content=sent, headers={"content-type": batch_type}).status_code == 200
    answer = client.get(RECORDS, params={"offset": 0}, headers={"accept": batch_type})
    assert (answer.content[16:], answer.headers["fenceline-position"]) == (sent[16:], "1")


def test_a_segments_url_gives_its_bytes_in_whole_or_in_part_and_only_as_signed(start: Start) -> None:
    _, client = start()
    create(client)
    produce(client)
    (segment,) = client.get("/v1/topics/orders/partitions/0/segments").json()["segments"]
    whole = httpx.get(segment["url"])
    assert (whole.status_code, len(whole.content)) == (200, segment["bytes"])
    for asked, status, content in [
        ("bytes=0-3", 206, whole.content[:4]),
        ("bytes=60-", 206, whole.content[60:]),
        ("bytes=60-9999", 206, whole.content[60:]),
        ("bytes=9999-", 416, b""),
        ("bytes=3-1", 200, whole.content),
        ("bytes=-5", 200, whole.content),
        ("lines=1-2", 200, whole.content),
    ]:
        part = httpx.get(segment["url"], headers={"range": asked})
        assert (part.status_code, part.content) == (status, content), asked
    assert httpx.get(segment["url"], headers={"range": "bytes=2-3"}).headers["content-range"] == (
        f"bytes 2-3/{segment['bytes']}"
    )
    for forged in (
        segment["url"][:-1] + "x",
        segment["url"].replace("/00000/", "/00001/"),
        segment["url"].split("?")[0],
    ):
        refused = httpx.get(forged)
        assert (refused.status_code, refused.json()["code"]) == (403, "NOT_AUTHORIZED")


def test_an_unknown_path_and_a_wrong_method_are_answered_as_by_a_gateway(start: Start) -> None:
    _, client = start()
    assert client.get("/v1/nope").json()["code"] == "NOT_FOUND"
    wrong = client.put("/v1/topics")
    assert (wrong.status_code, wrong.json()["code"], wrong.headers["allow"]) == (405, "METHOD_NOT_ALLOWED", "POST, GET")
    head = client.head("/v1/topics")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(client.get("/v1/topics").content))
    assert client.head("/v1/produce").status_code == 405
    assert client.get("/v1/topics/%6frders").json()["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    create(client)
    assert client.get("/v1/topics/%6frders").json()["name"] == "orders"
    for inside in ("orders%2Fpartitions%2f0%2Foffsets", "orders%2F", "%252F"):
        assert client.get(f"/v1/topics/{inside}").json()["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert client.get("/v1%2Fhealth").json()["code"] == "NOT_FOUND"
    assert client.put("/v1/topics/orders/subscriptions/a%2Fb").json()["code"] == "INVALID_REQUEST"


def test_a_transactional_id_is_decoded_once_and_an_invalid_one_is_refused(start: Start) -> None:
    _, client = start()
    for text in ("%2f", "a b", "é%", "+", "\ufffd"):
        given = client.post("/v1/producer-ids", json={"transactional_id": text})
        assert given.status_code == 200
    assert client.get("/v1/transactions/%252f").json()["transactional_id"] == "%2f"
    assert client.get("/v1/transactions/a%20b").json()["transactional_id"] == "a b"
    assert client.get("/v1/transactions/%C3%A9%25").json()["transactional_id"] == "é%"
    assert client.get("/v1/transactions/+").json()["transactional_id"] == "+"
    for text in ("%2f", "a%2Fb", "%FF", "%C3", "%ED%A0%80", "%00", "a%0A", "%7f", "x" * 250):
        assert client.get(f"/v1/transactions/{text}").json()["code"] == "INVALID_REQUEST", text


def test_every_worker_allows_the_given_origins_and_hosts_and_no_others(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fenceline_cli.main", "dev", "--data", str(tmp_path / "d"), "--port", "0"]
    command += ["--workers", "2", "--cors-origin", "http://localhost:3000", "--allowed-host", "build-box"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[-1]
            for _ in range(20):  # each on a connection of its own, for either worker to take
                named = {"host": "build-box", "origin": "http://localhost:3000"}
                answer = httpx.get(f"{url}/v1/health", headers=named, timeout=PATIENCE_S)
                assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
                other = {"origin": "http://localhost:3001"}
                assert httpx.get(f"{url}/v1/health", headers=other, timeout=PATIENCE_S).status_code == 403
                assert httpx.get(f"{url}/v1/health", headers={"host": "evil"}, timeout=PATIENCE_S).status_code == 403
        finally:
            process.terminate()


def test_an_invalid_origin_is_reported_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fenceline_cli.main", "dev", "--data", str(tmp_path / "d"), "--cors-origin", "*"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    expected = "error: --cors-origin takes an origin such as http://localhost:3000, not '*'\n"
    assert (ended.returncode, ended.stderr) == (1, expected)


def resident_kib(process: subprocess.Popen[str]) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])  # type: ignore[index]


@pytest.mark.parametrize(
    ("before", "piece", "status"),
    [
        (b"GET /v1/topics?prefix=", b"x" * 65_536, 414),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: ", b"x" * 65_536, 431),
        (b"GET / HTTP/1.1\r\nhost: a\r\n", b"x-a: 1\r\n" * 8_192, 431),
    ],
    ids=["url", "line", "lines"],
)
def test_endless_headers_are_answered_and_the_connection_is_dropped(
    start: Start, before: bytes, piece: bytes, status: int
) -> None:
    process, client = start()
    host, port = client.base_url.host, client.base_url.port
    assert client.get("/health").status_code < 500
    resident = resident_kib(process)
    with socket.create_connection((host, port), timeout=PATIENCE_S) as connection:
        connection.sendall(before + piece)
        with contextlib.suppress(ConnectionError):
            for _ in range(2_000):  # 125 MiB, were they taken
                connection.sendall(piece)
            pytest.fail("all of it was taken")
    with socket.create_connection((host, port), timeout=PATIENCE_S) as connection:
        connection.sendall(before + piece)
        answer = connection.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split()[1]) == json.loads(body)["status"] == status
    assert resident_kib(process) - resident < 32 * 1024
    assert client.get("/health").status_code < 500
