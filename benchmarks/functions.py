"""``python -m benchmarks.functions``: the size of each function's bundle, and the time of its cold start.

Rule: a fresh process imports what is deployed, from the bundle alone. CPU time is counted and not the clock's, so that
a busy machine changes it little.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from functions import FUNCTIONS
from infra import bundling

RUNS = 3
MIB = 1024 * 1024
STARTS = 20
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_REGION": "us-east-1"}
_STORES = "import fenceline.adapters.aws.s3, fenceline.adapters.aws.dynamodb"
# A function without its service: only what it imports is measured.
_WITHOUT_SERVICE = """
from fenceline_http import wiring
from functions.telemetry import observed
wiring.service = lambda: None
observed.answering = observed.running = lambda *_: None
"""


def imports_of(name: str) -> str:
    """Return the code that imports a function with all that it needs, its stores' adapters included."""
    return f"{_WITHOUT_SERVICE}import functions.{name}\n{_STORES}\n"


def import_ms(bundle: Path | None, name: str) -> float:
    """Return the CPU time of importing a function with all that it needs, or, without a bundle, a module."""
    wanted = f"import {name}" if bundle is None else imports_of(name)
    code = f"import time\nbegan = time.process_time()\n{wanted}\nprint((time.process_time() - began) * 1000)"
    # Without site-packages: the bundle, or what is installed here, and not both.
    command = [sys.executable, *(["-S"] if bundle else []), "-c", code]
    env = {"PYTHONPATH": str(bundle)} if bundle else None
    taken = [
        float(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout) for _ in range(RUNS)
    ]
    return min(taken)


def start_ms(bundle: Path, sdk: str) -> float:
    """Return the CPU time of a cold start of the produce function: all that it imports, and its stores' clients.

    Args:
        sdk: The SDK whose session makes the clients. boto3 is the one that is installed here, found after the
            bundle.
    """
    code = (
        "import time\nbegan = time.process_time()\n"
        f"{imports_of('produce')}"
        f"fenceline.adapters.aws.s3.S3ObjectStore('bucket', sdk='{sdk}')\n"
        f"fenceline.adapters.aws.dynamodb.dynamodb_client(sdk='{sdk}')\n"
        "print((time.process_time() - began) * 1000)"
    )
    path = os.pathsep.join([str(bundle), sysconfig.get_path("purelib")])
    env = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **_CREDENTIALS}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    try:
        bundle = bundling.bundled("here")
        deployed = bundling.bundled("lambda")
    except bundling.CannotBundle as error:
        print(f"functions not measured: {error}", file=sys.stderr)
        return 0
    if not bundling.is_compiled():
        print(bundling.NOT_COMPILED, file=sys.stderr)
    size = bundling.bytes_of(deployed) / MIB
    boto3_ms = import_ms(None, "boto3")
    print(f"function\tbundle MB (goal 32)\timport ms\timport / boto3 alone, {boto3_ms:.0f} ms (goal 2.3)")
    for name in FUNCTIONS:
        taken_ms = import_ms(bundle, name)
        print(f"{name}\t{size:.1f}\t{taken_ms:.0f}\t{taken_ms / boto3_ms:.2f}")
    pairs = [(start_ms(bundle, "botocore"), start_ms(bundle, "boto3")) for _ in range(STARTS)]
    lean_ms, full_ms = (min(taken) for taken in zip(*pairs, strict=True))
    more = f"{full_ms - lean_ms:.0f} ms, {(full_ms / lean_ms - 1) * 100:.1f} %"
    print(f"a cold start of produce: {lean_ms:.0f} ms by botocore's session; by boto3's {more} more")
    return 0


if __name__ == "__main__":
    sys.exit(main())
