"""The files of another version of this repository, in a directory of its own."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parents[2]
LIB = HERE / "lib"


@contextmanager
def extracted(ref: str) -> Iterator[Path]:
    """Lend the folder ``lib`` as it is at ``ref``, or in the directory of this name.

    Raises:
        CalledProcessError: git knows no such version.
    """
    if Path(ref).is_dir():
        yield Path(ref).resolve() / "lib"
        return
    packed = subprocess.run(["git", "archive", ref, "lib"], cwd=HERE, check=True, stdout=subprocess.PIPE).stdout
    with TemporaryDirectory(prefix="fenceline-") as directory:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(directory, filter="data")
        yield Path(directory) / "lib"


def python(lib: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the variables that run Python on the modules of ``lib``."""
    return [sys.executable, "-P", *arguments], {"PYTHONPATH": str(lib)}
