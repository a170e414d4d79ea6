"""``python -m tools.docs``: build the site of ``docs/``, or show it."""

from __future__ import annotations

import argparse
import sys
import time

from tools.docs import site


def main() -> int:
    """Run one command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the site into site/; a broken link, anchor or snippet fails")
    build.add_argument("--version", help="build this version into site/VERSION, and make it the latest: 0.1")
    commands.add_parser("serve", help="show the site at http://127.0.0.1:8000, and follow changes")
    commands.add_parser("links", help="ask each address outside that the pages name; needs the network")
    chosen = parser.parse_args()
    if chosen.command == "serve":
        return site.serve()
    if chosen.command == "links":
        broken = site.broken_links()
        print("\n".join(broken) or "each address answers")
        return int(bool(broken))
    begun = time.monotonic()
    try:
        folder = site.build(chosen.version)
    except site.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    took_s = time.monotonic() - begun
    print(f"the site is in {folder.relative_to(site.ROOT)}/, after {took_s:.1f} s; `make docs-serve` shows it")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
