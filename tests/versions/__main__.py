"""Compare this checkout with another version: ``python -m tests.versions OLD_REF [--part static] [--seeds 200]``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.versions import static
from tests.versions.trees import LIB, extracted

PARTS = ("static", "mixed", "servers")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("ref", metavar="OLD_REF", help="the older version, as git names it")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--seeds", type=int, default=200, help="of each scenario (default 200)")
    parser.add_argument("--seconds", type=float, default=30, help="for which servers are loaded (default 30)")
    arguments = parser.parse_args()
    with extracted(arguments.ref) as old:
        for part in arguments.part or PARTS:
            began = time.monotonic()
            found = static.compare(old, LIB)
            print(*found, f"{part}: {'differs' if found else 'the same'}, {time.monotonic() - began:.0f} s", sep="\n")
            if found:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
