"""All pages and parts of the navigation that are made from the code: writes them, and finds those that are stale.

Rule: made pages are committed, so that they can be read and reviewed where the code is. A test says when one is stale.

The page of Spark's options is made only where PySpark is installed, because its tables of options need it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools.docs import cli, errors, operations, settings
from tools.docs.markdown_text import made_from

ROOT = Path(__file__).parents[2]
NAVIGATION = "mkdocs.yml"
# Folders in which every page is made: another file there is left over.
_WHOLE = (cli.FOLDER, operations.FOLDER)


@cache
def pages() -> Mapping[str, str]:
    """Return the text of every made page, by its path in the repository. They are made once a process."""
    return {path: text + made_from(module.SOURCE) for module in _modules() for path, text in module.pages().items()}


def _modules() -> list[Any]:
    modules = [errors, cli, settings, operations]
    if find_spec("pyspark") is not None:
        from tools.docs import spark

        modules.append(spark)
    return modules


def navigation(text: str) -> str:
    """Return ``mkdocs.yml`` with its made parts as they should be."""
    for name, lines in {"commands": cli.nav(), "operations": operations.nav()}.items():
        part = re.compile(rf"^( *)# made: {name}\n.*?^ *# end\n", re.MULTILINE | re.DOTALL)
        found = part.search(text)
        if found is None:
            raise ValueError(f"{NAVIGATION} has no lines '# made: {name}' and '# end'")
        text = text[: found.start()] + f"{found[1]}# made: {name}\n{lines}{found[1]}# end\n" + text[found.end() :]
    return text


def files(root: Path = ROOT) -> dict[str, str]:
    """Return every file that is made, and the navigation, with the text that it should have."""
    return {**pages(), NAVIGATION: navigation((root / NAVIGATION).read_text())}


def stale(root: Path = ROOT) -> list[str]:
    """Return the paths of the files that differ from what they should be, and of pages that are made no longer."""
    return _stale(root, files(root))


def make(root: Path = ROOT) -> list[str]:
    """Write every file that is stale, delete what is made no longer, and return their paths."""
    made = files(root)
    wrong = _stale(root, made)
    for path in wrong:
        if path in made:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(made[path])
        else:
            (root / path).unlink()
    return wrong


def _stale(root: Path, made: Mapping[str, str]) -> list[str]:
    there = {str(path.relative_to(root)) for folder in _WHOLE for path in (root / folder).glob("*.md")}
    differs = {path for path, text in made.items() if not (root / path).is_file() or (root / path).read_text() != text}
    return sorted(differs | there - set(made))
