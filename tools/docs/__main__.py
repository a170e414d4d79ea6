"""``python -m tools.docs``: build the site of ``docs/``, or show it; make the pages that come from the code."""

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
    commands.add_parser("make", help="write the pages that are made from the code")
    commands.add_parser("check", help="name the made pages that are stale")
    commands.add_parser("links", help="ask each address outside that the pages name; needs the network")
    chosen = parser.parse_args()
    if chosen.command == "serve":
        return site.serve()
    if chosen.command == "links":
        broken = site.broken_links()
        print("\n".join(broken) or "each address answers")
        return int(bool(broken))
    if chosen.command in ("make", "check"):
        return _made(is_writing=chosen.command == "make")
    begun = time.monotonic()
    try:
        folder = site.build(chosen.version)
    except site.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    took_s = time.monotonic() - begun
    print(f"the site is in {folder.relative_to(site.ROOT)}/, after {took_s:.1f} s; `make docs-serve` shows it")
    return 0


def _made(*, is_writing: bool) -> int:
    from tools.docs import made  # Only here: it loads all that the pages are about.

    wrong = made.make() if is_writing else made.stale()
    for path in wrong:
        print(f"made {path}" if is_writing else f"{path} is stale; run .venv/bin/python -m tools.docs make")
    return int(bool(wrong) and not is_writing)


if __name__ == "__main__":
    raise SystemExit(main())
