"""The prose of documents, docstrings, comments and messages, by the rule that a program can judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.prose import Finding, of_markdown, of_python

ROOT = Path(__file__).parents[2]
LEFT_OUT = {ROOT / "tests/unit/test_prose.py", ROOT / "tests/support/prose.py"}  # they quote what they forbid
MODULES = [
    *sorted(path for path in (ROOT / "lib").glob("fenceline/*") if path.is_dir() and path.name != "__pycache__"),
    ROOT / "lib/fenceline_cli",
    ROOT / "lib/fenceline_http",
    ROOT / "lib/fenceline_spark",
    ROOT / "lib/fenceline_testing",
    ROOT / "functions",
    ROOT / "infra",
    ROOT / "benchmarks",
    ROOT / "examples",
    ROOT / "models",
    ROOT / "tests",
]
GROUND = [*sorted((ROOT / "lib/fenceline").glob("*.py")), ROOT / "app.py"]
PAGES = sorted(
    [
        *(page for folder in (ROOT, ROOT / "models", ROOT / "infra") for page in folder.glob("*.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)


def found_in(path: Path) -> list[str]:
    judge = of_markdown if path.suffix == ".md" else of_python
    return [f"{path.relative_to(ROOT)}:{line}: {found}" for line, found in judge(path.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_sentences_of_a_page_name_their_actors(page: Path) -> None:
    assert found_in(page) == []


@pytest.mark.parametrize("module", GROUND, ids=lambda module: module.name)
def test_the_sentences_of_a_module_name_their_actors(module: Path) -> None:
    assert found_in(module) == []


@pytest.mark.parametrize("package", MODULES, ids=lambda package: package.name)
def test_the_sentences_of_a_package_name_their_actors(package: Path) -> None:
    assert [line for path in sorted(package.rglob("*.py")) if path not in LEFT_OUT for line in found_in(path)] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Everybody may read it."""\n', [(1, "'Everybody'")]),
        ("x = 1\n# One sentence of words that no\n# one reads.\n", [(2, "'no one'")]),
        ('def f():\n    """Return it.\n\n    Raises:\n        KeyError: Nobody has it.\n    """\n', [(2, "'Nobody'")]),
        ("raise ValueError(f'the line {x} stands in a file')\n", [(1, "'stands in'")]),
        ("x = 1  # whoever comes first\n", [(1, "'whoever'")]),
        ("x = 'one of no'\n# One sentence of words.\n", []),
    ],
)
def test_prose_that_breaks_a_rule_is_found_with_its_line(source: str, expected: list[Finding]) -> None:
    found = list(of_python(source))
    assert [(line, what.partition(":")[0]) for line, what in found] == expected


def test_cells_items_and_paragraphs_of_a_page_are_judged_each_by_itself() -> None:
    items = "text\n- Who reads\n- Who writes\n\n| text | Who reads |"
    page = f"# Title\n\n{items}\n\n```\nsomebody\n```\n\nof words that no\none reads\n"
    found = [(line, what.partition(":")[0]) for line, what in of_markdown(page)]
    assert found == [(4, "'Who'"), (5, "'Who'"), (7, "'Who'"), (13, "'no one'")]
