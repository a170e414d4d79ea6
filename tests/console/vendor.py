"""The modules of others in the console: ``python -m tests.console.vendor`` compares them with what npm has.

``vendor.json`` names each module with its package and version. The command fetches these by npm's own client, which
checks their integrity, and makes of them what the page loads: imports by name become paths, and the names of source
maps are dropped. It says what differs. ``--write`` writes the modules, their hashes and their licences. To take another
version, change it in ``vendor.json``, and run the command with ``--write``.

Not here: what is read without a network (``test_rules``).
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import fenceline_console

VENDOR = Path(fenceline_console.__file__).parent / "page/vendor"
KNOWN = VENDOR / "vendor.json"
LICENSES = VENDOR / "LICENSES.md"
_IMPORTED = re.compile(r"""(\bfrom|\bimport)\s*(["'])([^"'./][^"']*)\2""")
_MAP = re.compile(r"\s*//# sourceMappingURL=\S*\s*$")


def known() -> dict[str, Any]:
    """Return what is vendored, and from where."""
    found: dict[str, Any] = json.loads(KNOWN.read_text())
    return found


def sha256_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def fetched(name: str, version: str, folder: Path) -> tuple[str, Path]:
    """Return the integrity of a package by npm, and the folder of its files."""
    packed = subprocess.run(
        ["npm", "pack", f"{name}@{version}", "--json", "--pack-destination", str(folder)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    [one] = json.loads(packed.stdout)
    into = folder / one["filename"].removesuffix(".tgz")
    with tarfile.open(folder / one["filename"]) as archive:
        archive.extractall(into, filter="data")
    return one["integrity"], into / "package"


def made_of(text: str, paths: dict[str, str]) -> str:
    """Return a module as the page loads it."""
    local = _IMPORTED.sub(lambda found: f'{found[1]}"./{paths[found[3]]}"', text)
    return _MAP.sub("", local) + "\n"


def main(is_written: bool) -> int:
    """Compare or write; return 1 if something differs."""
    document = known()
    paths = {module["imported_as"]: module["file"] for module in document["modules"]}
    files: dict[str, str] = {}
    licences = ["# Licences of the modules in this folder\n"]
    with tempfile.TemporaryDirectory() as made:
        for package in document["packages"]:
            integrity, folder = fetched(package["name"], package["version"], Path(made))
            package["integrity"] = integrity if is_written else package["integrity"]
            if package["integrity"] != integrity:
                print(f"{package['name']} {package['version']}: npm has {integrity}")
                return 1
            licences += [
                f"## {package['name']} {package['version']}\n",
                (folder / "LICENSE").read_text().strip() + "\n",
            ]
            for module in document["modules"]:
                if module["package"] == package["name"]:
                    files[module["file"]] = made_of((folder / module["from"]).read_text(), paths)
                    module["sha256"] = sha256_of(files[module["file"]].encode())
    files[LICENSES.name] = "\n".join(licences)
    files[KNOWN.name] = json.dumps(document, indent=2) + "\n"
    differing = [
        name for name, text in files.items() if not (VENDOR / name).exists() or (VENDOR / name).read_text() != text
    ]
    for name in differing:
        if is_written:
            (VENDOR / name).write_text(files[name])
        print(f"{name}: {'written' if is_written else 'differs; run it with --write'}")
    if not differing:
        print(f"{len(files)} files are those of npm")
    return int(bool(differing) and not is_written)


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))
