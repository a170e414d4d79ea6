"""The tree's own rule, beside those of import-linter: a module says what it is."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOPS = ("lib", "functions", "infra", "benchmarks", "models")


def test_a_module_begins_with_what_it_is() -> None:
    modules = [path for top in TOPS for path in (ROOT / top).rglob("*.py")]
    silent = [str(path.relative_to(ROOT)) for path in modules if not ast.get_docstring(ast.parse(path.read_text()))]
    assert modules
    assert silent == []
