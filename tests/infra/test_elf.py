"""Compiled modules without symbols."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import google_crc32c._crc32c as compiled
import pytest

from infra import elf

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its compiled modules are ELF files")


def test_a_module_without_symbols_is_smaller_and_does_what_it_did(tmp_path: Path) -> None:
    package = tmp_path / "google_crc32c"
    shutil.copytree(Path(compiled.__file__).parent, package)
    shutil.copytree(Path(compiled.__file__).parents[1] / "google_crc32c.libs", tmp_path / "google_crc32c.libs")
    before = Path(compiled.__file__).read_bytes()
    elf.strip(tmp_path)
    after = (package / Path(compiled.__file__).name).read_bytes()
    assert len(after) < len(before)
    assert after[64:] == before[64 : len(after)], "only the file's header is changed"
    code = "import google_crc32c as c; assert c.implementation == 'c'; print(c.__file__, c.value(b'123456789'))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(package / "__init__.py"), str(0xE3069283)]


def test_it_is_done_once_and_what_is_no_module_stays_as_it_is() -> None:
    lean = elf.stripped(Path(compiled.__file__).read_bytes())
    assert elf.stripped(lean) == lean
    assert elf.stripped(b"text") == b"text"
