"""``python -m benchmarks.s2_lite [--json]``: fenceline's server beside s2-lite, on one S3 server, in one run.

s2-lite is the open-source server of S2, a log on object storage whose one process owns every stream. It is measured
where ``FENCELINE_S2_LITE`` names its command: the path of the program ``server`` that the crate s2-lite builds, or
``"s2 lite"``.

Rule: both servers work on the same bucket. Their clients are the same thin client of HTTP: each sends one record, all
to one stream, and waits for its acknowledgement. The two take turns, in rounds, and the one whose turn it is not is
stopped: s2-lite would go on compacting what it wrote, at the expense of what is measured. A ratio is the median of the
ratios of the rounds. s2-lite flushes every 5 ms; its default on S3 is 50 ms.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.bucket import Scratch
from benchmarks.figures import Row
from benchmarks.one_server import CLIENTS, LARGE, SIZES, SMALL, post_of
from benchmarks.real_servers import STORES
from benchmarks.thin_client import Post, load
from fenceline import limits
from fenceline.settings import Settings
from fenceline_cli.dev_server.process import ServerProcess
from fenceline_cli.output import print_json, print_rows
from fenceline_cli.stores import prepare
from tests.servers.install import CannotInstall
from tests.servers.run import CREDENTIALS, dynamodb_local, running, versitygw

VARIABLE = "FENCELINE_S2_LITE"
NOT_MEASURED = (
    f"not measured beside s2-lite, since {VARIABLE} is not set. Set it to the path of 'server', which"
    " 'cargo install --locked s2-lite' builds, or to 's2 lite'."
)
BASIN = "fenceline-bench"
FLUSH = "5ms"
SECONDS, ROUNDS = 3.0, 3
GOALS: Mapping[tuple[int, int], str] = {
    (SMALL, 1): "≥ 2",
    (SMALL, 8): "≥ 1.2",
    (LARGE, 1): "≥ 2",
    (LARGE, 8): "≥ 3",
}
OURS, THEIRS = "fenceline", "s2-lite"
Signal = Callable[[signal.Signals], object]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.s2_lite", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of each load (default {SECONDS:g})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of all loads (default {ROUNDS})")
    arguments = parser.parse_args()
    command = shlex.split(os.environ.get(VARIABLE, ""))
    if not command:
        print(NOT_MEASURED, file=sys.stderr)
        return 0
    try:
        rows = measure(command, arguments.seconds, arguments.rounds)
    except CannotInstall as error:
        print(f"not measured beside s2-lite: {error}", file=sys.stderr)
        return int(os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1")
    if arguments.json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        lines = [(row.what, f"{row.value:,.3f}", row.unit, row.goal) for row in rows]
        print_rows(("what", "value", "unit", "goal"), lines)
    return 0


def measure(command: Sequence[str], seconds: float, rounds: int) -> list[Row]:
    """Start all servers, and return the rows."""
    with versitygw() as objects, dynamodb_local() as items:
        urls = {"AWS_ENDPOINT_URL_S3": objects, "AWS_ENDPOINT_URL_DYNAMODB": items}
        os.environ.update({**CREDENTIALS, **urls})
        settings = Settings(objects=STORES[1], items=STORES[3], item_age_ms=limits.ITEM_AGE_MS_MAX)
        prepare(settings, is_create=True)
        with (
            Scratch(settings) as scratch,
            ServerProcess(None, options=scratch.options) as server,
            s2_lite(command, settings.bucket_and_prefix[0]) as (other, signal_other),
        ):
            signals = {OURS: server.send, THEIRS: signal_other}
            rows = []
            for name, size in SIZES:
                topic = scratch.topic("beside")
                posts = {OURS: post_of(server.url, topic, size), THEIRS: s2_post(other, f"size-{size}", size)}
                rows += compare(name, size, posts, signals, seconds, rounds)
            return rows


@contextmanager
def s2_lite(command: Sequence[str], bucket: str) -> Iterator[tuple[str, Signal]]:
    """Lend an s2-lite that works on a bucket, with a stream for each size of ``SIZES``: its URL, and what signals it.

    The environment names the endpoint and the credentials.
    """
    with TemporaryDirectory() as folder:
        wanted = {"basins": [{"name": BASIN, "streams": [{"name": f"size-{size}"} for _, size in SIZES]}]}
        made = Path(folder) / "made.json"
        made.write_text(json.dumps(wanted))
        options = ["--bucket", bucket, "--path", "s2-lite", "--init-file", str(made)]
        # By default it prints a line for each request.
        env = {"SL8_FLUSH_INTERVAL": FLUSH, "AWS_ALLOW_HTTP": "true", "RUST_LOG": "warn"}
        process: list[subprocess.Popen[bytes]] = []
        with running(lambda port: [*command, *options, "--port", str(port)], env, on_ready=process.append) as url:
            yield url, process[0].send_signal


def s2_post(url: str, stream: str, size: int) -> Post:
    """Return the request that appends a record of ``size`` bytes to a stream, as protobuf."""
    kind = "application/protobuf"
    headers = {"s2-basin": BASIN, "content-type": kind, "accept": kind, "authorization": "Bearer none"}
    return Post(url, f"/v1/streams/{stream}/records", append_input(b"x" * size), headers)


def append_input(body: bytes) -> bytes:
    """Return the message AppendInput with one record: in it field 1 is a record, in a record field 3 is its body."""
    return _field(1, _field(3, body))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


@contextmanager
def stopped(send: Signal) -> Iterator[None]:
    send(signal.SIGSTOP)
    try:
        yield
    finally:
        send(signal.SIGCONT)


Load = Callable[[Post, int, float], float]


def answers_per_second(post: Post, clients: int, seconds: float) -> float:
    return load(post, clients=clients, seconds=seconds)[0]


def compare(
    name: str,
    size: int,
    posts: Mapping[str, Post],
    signals: Mapping[str, Signal],
    seconds: float,
    rounds: int,
    load: Load = answers_per_second,
) -> list[Row]:
    """Return the rows of one size: the rates of both servers by turns, and the ratio of ours to theirs."""
    rows: list[Row] = []
    for clients in CLIENTS:
        rates: dict[str, list[float]] = {OURS: [], THEIRS: []}
        many = f"{clients} client{'s' if clients > 1 else ''}, {name}"
        for number in range(rounds):
            for who in (OURS, THEIRS) if number % 2 else (THEIRS, OURS):  # neither is always the first
                print(f"measuring {who}, {many}, round {number + 1} of {rounds} …", file=sys.stderr)
                with stopped(signals[THEIRS if who == OURS else OURS]):
                    rates[who].append(load(posts[who], clients, seconds))
        for who, found in rates.items():
            rate = statistics.median(found)
            if size == LARGE:
                rows.append(Row(f"acknowledged, {who}, {many}", rate * size / limits.MIB, "MiB/s"))
            else:
                rows.append(Row(f"acknowledged appends, {who}, {many}", rate, "1/s"))
        ratio = statistics.median(a / b for a, b in zip(rates[OURS], rates[THEIRS], strict=True))
        rows.append(Row(f"{OURS} ÷ {THEIRS}, {many}", ratio, "×", GOALS[size, clients]))
    return rows


if __name__ == "__main__":
    sys.exit(main())
