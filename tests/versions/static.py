"""Whether two versions answer and store the same in one session, each alone and each on what the other one stored.

Rule: the session has two halves, each in a process of its own. The second half is played by each version on the stores
that each version left. So a version that reads another one's stores differently is found, too.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.versions.trees import python

SCRIPT = Path(__file__).with_name("session.py")
PUBLIC = "fenceline.__all__"  # the step with the public names: a version may add some
RETIRED = {"subscribe"}  # names that stay for one version, outside of the list, and warn
STEPS_MAX = 10  # that are shown of all that differ
LINES_MAX = 40  # of each

Step = list[Any]


def play(lib: Path, directory: Path, half: int) -> list[Step]:
    """Play one half of the session with the modules of ``lib``; return its steps."""
    command, variables = python(lib, str(SCRIPT), str(directory), str(half))
    played = subprocess.run(command, env={**os.environ, **variables}, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in played.stdout.splitlines()]


def compare(old: Path, new: Path) -> list[str]:
    """Return the lines that show where the versions differ: none where they do not."""
    with TemporaryDirectory(prefix="fenceline-") as name:
        versions = {"old": old, "new": new}
        left = {wrote: _made(Path(name) / wrote) for wrote in versions}
        played = [play(lib, left[version], 0) for version, lib in versions.items()]
        found = [*differences(*played)]
        expected: list[Step] = []
        for wrote in versions:
            for version, lib in versions.items():
                stores = shutil.copytree(left[wrote], Path(name) / f"{wrote}-{version}")
                steps = play(lib, stores, 1)
                expected = expected or steps
                found += [f"on the stores of {wrote}, {line}" for line in differences(expected, steps)]
        print(f"static: {len(played[0])} steps, and {len(expected)} on the stores that each version left", flush=True)
    return found


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def differences(old: Sequence[Step], new: Sequence[Step]) -> Iterator[str]:
    """Yield lines that show the steps that differ, the first ones of them in full."""
    steps = zip_longest(old, new, fillvalue=["nothing"])
    pairs = [(one, other) for one, other in steps if one != other and not _adds_names(one, other)]
    for one, other in pairs[:STEPS_MAX]:
        yield f"{one[0]}:"
        yield from islice(difflib.unified_diff(_lines(one), _lines(other), "old", "new", "", "", 1), LINES_MAX)
    if len(pairs) > STEPS_MAX:
        yield f"and {len(pairs) - STEPS_MAX} more of {len(old)} steps"


def _adds_names(old: Step, new: Step) -> bool:
    """Return True if both steps are the public names, and the new version has all but the retired ones."""
    return old[0] == new[0] == PUBLIC and set(old[1]) - RETIRED <= set(new[1])


def _lines(step: Step) -> list[str]:
    """Return a step in short lines: each value, each row, and each part of a text up to a comma or a line's end."""
    lines = json.dumps(step, indent=1, ensure_ascii=False).splitlines()
    return [part for line in lines for part in re.split(r"(?<=,)(?=.)|(?<=\\n)(?=.)", line)]
