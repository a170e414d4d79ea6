"""The wheel that pip installs: every package of ours, the console's files, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {path.name for path in (ROOT / "lib").iterdir() if (path / "__init__.py").exists()}


@pytest.mark.slow
def test_the_wheel_has_every_package_and_the_consoles_files(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "lib", tmp_path / "lib", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "."]
    subprocess.run(command, cwd=tmp_path, check=True)

    (wheel,) = tmp_path.glob("*.whl")
    packed = {path for path in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in path}
    assert {path.partition("/")[0] for path in packed} == PACKAGES
    kept = [path for name in PACKAGES for path in (ROOT / "lib" / name).rglob("*.py")]
    assert {str(path.relative_to(ROOT / "lib")) for path in kept} <= packed
    assert [path for path in packed if path.endswith(".md")] == ["fenceline_console/page/vendor/LICENSES.md"]
    console = [path for path in (ROOT / "lib/fenceline_console/page").rglob("*") if path.is_file()]
    assert {str(path.relative_to(ROOT / "lib")) for path in console} <= packed
