"""The tree's own rules, beside those of import-linter: how large a module may be, and that it says what it is."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
LINES_MAX = 400
MEDIAN_MAX = 130
MODULES = [path for top in ("lib", "functions", "infra", "benchmarks") for path in sorted((ROOT / top).rglob("*.py"))]


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_can_be_read_in_one_sitting_and_begins_with_what_it_is(module: Path) -> None:
    assert lines_of(module) <= LINES_MAX
    assert ast.get_docstring(ast.parse(module.read_text()))


def test_most_modules_are_short() -> None:
    assert median(map(lines_of, MODULES)) <= MEDIAN_MAX
