"""The types of the console's modules, by their JSDoc: ``python -m tests.console.types`` checks them, strictly.

The modules run as they are written, so nothing is compiled. The checker and the types of the modules of others come
from npm, pinned, into the cache of ``tests.servers.install``. Where Node or npm is missing, nothing is checked, and a
line says so; that fails only where ``FENCELINE_REQUIRE_BROWSER=1``, as in CI.

Not here: types of the service's answers, which the page takes as they come.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import fenceline_console
from tests.console.vendor import known
from tests.servers import install

PAGE = Path(fenceline_console.__file__).parent / "page"
OPTIONS = {
    "strict": True,
    "noUncheckedIndexedAccess": False,
    "noEmit": True,
    "allowJs": True,
    "checkJs": True,
    "target": "es2024",
    "lib": ["esnext", "dom", "dom.iterable"],
    "module": "esnext",
    "moduleResolution": "bundler",
    "skipLibCheck": True,
    "types": [],
}


def check() -> tuple[int, str]:
    """Return the checker's exit code, and what it printed.

    Raises:
        CannotInstall: Node or npm is missing or too old, or could not fetch the checker.
    """
    document = known()
    packages = install.console_types([f"{one['name']}@{one['version']}" for one in document["packages"]])
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made) / "page"
        shutil.copytree(PAGE, copy, ignore=shutil.ignore_patterns("vendor"))
        (copy / "vendor").mkdir()
        for module in document["modules"]:
            default = f'\nexport {{ default }} from "{module["imported_as"]}";' if module["file"] == "htm.mjs" else ""
            declared = f'export * from "{module["imported_as"]}";{default}\n'
            (copy / "vendor" / module["file"].replace(".mjs", ".d.mts")).write_text(declared)
        (Path(made) / "node_modules").symlink_to(packages)
        (Path(made) / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "include": ["page"]}))
        command = ["node", str(packages / "typescript/bin/tsc"), "--project", made, "--pretty", "false"]
        ran = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout + ran.stderr


def main() -> int:
    """Check, print what is wrong, and return 1 if something is."""
    try:
        code, printed = check()
    except install.CannotInstall as error:
        print(f"the types of the console's modules were not checked: {error}")
        return int(os.environ.get("FENCELINE_REQUIRE_BROWSER") == "1")
    print(printed or "the types of the console's modules hold", end="" if printed else "\n")
    return int(code != 0)


if __name__ == "__main__":
    sys.exit(main())
