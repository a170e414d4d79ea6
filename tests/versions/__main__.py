"""Compare this checkout with another version: ``python -m tests.versions OLD_REF [--part static] [--seeds 200]``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulation.scenarios import SCENARIOS
from tests.versions import mixed, servers, static
from tests.versions.trees import LIB, extracted


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument(
        "old", metavar="OLD_REF", help="the older version, as git names it, or a directory with its lib"
    )
    parser.add_argument("--part", choices=("static", "mixed", "servers"), action="append", help="only this part")
    parser.add_argument("--scenario", choices=tuple(SCENARIOS), action="append", help="only this one, if mixed")
    parser.add_argument("--seeds", type=int, default=200, help="of each scenario (default 200)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed (default 0)")
    parser.add_argument("--seconds", type=float, default=30, help="for which servers are loaded (default 30)")
    arguments = parser.parse_args()
    with extracted(arguments.old) as old, TemporaryDirectory(prefix="fenceline-") as directory:

        def play_mixed() -> list[str]:
            mixed.load(old, Path(directory))
            return mixed.compare(range(arguments.first, arguments.first + arguments.seeds), arguments.scenario)

        parts: dict[str, Callable[[], list[str]]] = {
            "static": partial(static.compare, old, LIB),
            "mixed": play_mixed,
            "servers": partial(servers.compare, old, LIB, arguments.seconds),
        }
        failed = 0
        for part in arguments.part or parts:
            began = time.monotonic()
            found = parts[part]()
            print(*found, f"{part}: {'differs' if found else 'the same'}, {time.monotonic() - began:.0f} s", sep="\n")
            failed += bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
