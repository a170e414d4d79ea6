"""The README's blocks, for the tests that run them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
PYTHON = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def commands_of(block: str) -> list[str]:
    """Return a block's commands, one a line, unchanged."""
    return block.replace("\\\n", "").splitlines()
