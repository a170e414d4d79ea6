"""The daemon of the workers of the tests' session: ``python warm_daemon.py MODULE``, for ``python -m pyspark.daemon``.

Spark runs each plan, task and commit in a process that its daemon forks. This daemon has imported before what such a
process imports, because the imports are half a second of CPU, in each of hundreds.

Not here: drivers that a test starts for itself. Their workers import all of it, as anywhere else.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

COMMIT = ("fenceline_spark.sink.commit", "fenceline_spark.sink.writers")
IMPORTED = {
    "pyspark.worker": ("fenceline_spark.sink.task", "fenceline_spark.source.task", "pandas", "pyarrow.compute"),
    "pyspark.sql.worker.commit_data_source_write": COMMIT,
    "pyspark.sql.worker.python_streaming_sink_runner": COMMIT,
}


def warm_python(folder: Path) -> Path:
    """Return a Python that is this one, but for the daemon.

    A worker of a stream comes from no daemon. Spark gives it ten seconds to start, which nothing changes, and a machine
    on which other tests start dozens of processes takes longer. So it goes before those, where this user may say so.
    """
    python = folder / "python"
    python.write_text(
        f"""#!/bin/sh
[ "$2" = pyspark.daemon ] && shift 2 && exec "{sys.executable}" "{__file__}" "$@"
renice -n -10 -p $$ >/dev/null 2>&1
exec "{sys.executable}" "$@"
"""
    )
    python.chmod(0o755)
    return python


def main() -> None:
    sys.path[0] = ""  # as for `python -m`
    for name in ("pyspark_fenceline", *IMPORTED.get(sys.argv[1], ())):
        importlib.import_module(name)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
