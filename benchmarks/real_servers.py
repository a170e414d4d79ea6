"""``python -m benchmarks.real_servers``: ``fenceline bench`` on real S3 and DynamoDB servers.

It takes the options of ``fenceline bench``, and ``--plot FILE``: a picture of how long the appends of many processes
take. The S3 server that is 30 ms away is the same one behind a proxy. The proxy takes its processor time from the
machine that is measured. So this program prints how many requests a second the proxy could pass at most.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tests.servers.install import CannotInstall
from tests.servers.proxy import proxied
from tests.servers.run import CREDENTIALS, dynamodb_local, versitygw

STORES = ["--objects", "s3://fenceline-bench/bench", "--items", "dynamodb://fenceline-bench"]
FAR_S = 0.030


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_servers", description=__doc__)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the latencies of the races into this PNG")
    arguments, options = parser.parse_known_args()
    if arguments.plot is None:
        return measure(options)
    try:
        from benchmarks import plot  # only here: matplotlib is an extra
    except ModuleNotFoundError as error:
        parser.error(f'--plot needs {error.name}: pip install "fenceline-log[plot]"')
    with tempfile.TemporaryDirectory() as folder:
        latencies = Path(folder) / "latencies.json"
        code = measure([*options, "--latencies", str(latencies)])
        if code == 0 and latencies.exists():
            plot.draw(plot.read(latencies), arguments.plot)
            print(f"drawn: {arguments.plot}", file=sys.stderr)
    return code


def measure(options: Sequence[str]) -> int:
    """Run ``fenceline bench`` on servers of its own, and return its exit code."""
    try:
        with (
            versitygw() as objects,
            dynamodb_local() as items,
            proxied(objects, request_delay_s=FAR_S, new_loop=uvloop.new_event_loop) as far,
        ):
            urls = {"AWS_ENDPOINT_URL_S3": objects, "AWS_ENDPOINT_URL_DYNAMODB": items}
            command = [sys.executable, "-m", "benchmarks", *STORES, "--slow-endpoint", far.url]
            environment = {**os.environ, **CREDENTIALS, **urls}
            used_s = time.process_time()  # from here on only the proxy works in this process
            code = subprocess.run([*command, *options], env=environment, check=False).returncode
            print(capacity(far.requests, time.process_time() - used_s), file=sys.stderr)
            return code
    except CannotInstall as error:
        print(f"not measured on S3: {error}", file=sys.stderr)
        return int(os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1")


def capacity(requests: int, used_s: float) -> str:
    """Return a line that says how many requests a second the proxy could pass, were a processor its own."""
    if not requests:
        return "the proxy that adds 30 ms passed no request"
    each_us = used_s / requests * 1e6
    return (
        f"the proxy that adds 30 ms passed {requests:,} requests, each with {each_us:.0f} µs of processor time:"
        f" at most {1e6 / each_us:,.0f} a second"
    )


if __name__ == "__main__":
    sys.exit(main())
