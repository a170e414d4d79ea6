"""``python -m benchmarks``: ``fenceline bench`` of this checkout, whatever ``fenceline`` is installed."""

from __future__ import annotations

import sys

from benchmarks import command
from fenceline_cli.commands import bench
from fenceline_cli.main import app

if __name__ == "__main__":
    bench.app = command.app
    app(["bench", *sys.argv[1:]], prog_name="fenceline")
