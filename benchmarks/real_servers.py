"""``python -m benchmarks.real_servers [--json]``: ``fenceline bench`` on real S3 and DynamoDB servers."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.servers.install import CannotInstall
from tests.servers.proxy import proxied
from tests.servers.run import CREDENTIALS, dynamodb_local, versitygw

STORES = ["--objects", "s3://fenceline-bench/bench", "--items", "dynamodb://fenceline-bench"]
FAR_S = 0.030


def main() -> int:
    try:
        with versitygw() as objects, dynamodb_local() as items, proxied(objects, request_delay_s=FAR_S) as far:
            urls = {"AWS_ENDPOINT_URL_S3": objects, "AWS_ENDPOINT_URL_DYNAMODB": items}
            command = [sys.executable, "-m", "fenceline_cli.main", "bench", *STORES, "--slow-endpoint", far.url]
            environment = {**os.environ, **CREDENTIALS, **urls}
            return subprocess.run([*command, *sys.argv[1:]], env=environment, check=False).returncode
    except CannotInstall as error:
        print(f"not measured on S3: {error}", file=sys.stderr)
        return int(os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1")


if __name__ == "__main__":
    sys.exit(main())
