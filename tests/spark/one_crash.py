"""One crash of a driver, told step by step: ``python -m tests.spark.one_crash [MOMENT]``, with a number as printed.

Rule: it is the crash of ``test_driver_crashes``: the same processes, the same gate, the same comparison.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fenceline_spark import java
from fenceline_testing import serving
from tests.spark.copying import MOMENTS, UNHEARD, Copying


def show(text: str) -> None:
    print(text, flush=True)


def show_requests(log: Sequence[str], once_id: str) -> None:
    """Print what the sink asked, with the query's id as ``spark.q``: neither listings nor reads."""
    for line in log:
        if re.match(r"GET /v1/(once|transactions)/|POST ", line):
            show(f"     {line.replace(once_id, 'spark.q')}")


def show_state(copying: Copying, batch: int) -> None:
    logged, done = ((copying.checkpoint / name / str(batch)).exists() for name in ("offsets", "commits"))
    visible, written = copying.committed().total(), copying.committed("read_uncommitted").total()
    show(f"   checkpoint: offsets/{batch} {is_there(logged)}, commits/{batch} {is_there(done)}")
    show(f"   service: once(spark.q) = {copying.version}")
    show(f"   copy: {visible} rows for a committed reader, {written} written")


def is_there(found: bool) -> str:
    return "is there" if found else "is not there"


def main(number: int) -> None:
    for other, name in enumerate(MOMENTS):
        show(f"{'->' if other == number else '  '} {other}: {name}")
    name, (request, is_answered, is_decided) = list(MOMENTS.items())[number]
    java.provide()
    with tempfile.TemporaryDirectory() as folder, serving() as lent:
        copying = Copying(lent.client, lent.url, Path(folder))
        copying.grow()
        show(f"\n1. {len(copying.all_values())} rows are in {copying.source}. Driver 1 starts, and its sink asks:")
        with copying.driver() as (first, gate):
            hold = gate.hold(request, is_answered=is_answered)
            first.meets(hold)
            first.kill()
            log = list(gate.log)
        show_requests(log, copying.once_id)
        held = "its answer" if is_answered else "it"
        show(f"\n2. kill -9, while {held} is on the way: {name}")
        show_state(copying, 0)
        assert (copying.version == 0) is is_decided
        assert copying.committed() == copying.expected(copying.version)
        copying.grow()
        show(
            f"\n3. {copying.source} has grown to {len(copying.all_values())} rows. Driver 2 starts, and its sink asks:"
        )
        with copying.driver() as (second, gate):
            assert second.wait() == 0, second.output()
            show_requests(gate.log, copying.once_id)
        show("\n4. It ended by itself.")
        show_state(copying, 1)
        copying.check_whole()
        show(f"   each of the {len(copying.all_values())} rows is in the copy once, and no reader waits")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else list(MOMENTS).index(UNHEARD))
