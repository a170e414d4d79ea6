"""``python -m tools.docs build`` makes the site of ``docs/`` in ``site/``; a broken link or anchor fails it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Build the site, strictly."""
    zensical = Path(sys.executable).with_name("zensical")
    return subprocess.run([zensical, "build", "--strict", "-f", "mkdocs.yml"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
