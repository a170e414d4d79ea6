"""The tree's own rule, beside those of import-linter: a module says what it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = ("lib", "functions", "infra", "benchmarks", "models")
MODULES = [path for top in TOPS for path in sorted((ROOT / top).rglob("*.py"))]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_begins_with_what_it_is(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text()))
