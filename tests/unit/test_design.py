"""DESIGN.md against the code and the tests that cite it: its invariants, and its titles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / "lib/fenceline" / name).read_text() for name in ("DESIGN.md", "API.md")}
TOPS = ("lib", "functions", "infra", "tests", "benchmarks", "models")
SOURCES = {path: path.read_text() for top in TOPS for path in (ROOT / top).rglob("*.py")}
STATED = re.compile(r"^- \*\*(I\d+)\*\* ", re.MULTILINE)
CITED = re.compile(r"\bI\d{1,2}\b")
# A title may be broken over two lines, of a comment or of a docstring.
TITLED = re.compile(r'(DESIGN|API)\.md,\s+(?:#\s+)?"([^"]+)"')
NUMBERED = re.compile(r"(?<!RFC 4648 )\bsections? \d+")


def invariants() -> set[str]:
    return set(STATED.findall(PAGES["DESIGN.md"]))


def test_the_invariants_are_numbered_without_a_gap() -> None:
    assert invariants() == {f"I{number}" for number in range(1, len(invariants()) + 1)}


@pytest.mark.parametrize("invariant", sorted(invariants()))
def test_each_invariant_is_cited_by_the_tests_that_hold_it(invariant: str) -> None:
    holding = [text for path, text in SOURCES.items() if path.is_relative_to(ROOT / "tests") and path != Path(__file__)]
    assert any(re.search(rf"\b{invariant}\b", text) for text in holding)


@pytest.mark.parametrize("invariant", sorted(invariants()))
def test_each_invariant_is_cited_by_the_code_that_keeps_it(invariant: str) -> None:
    keeping = [text for path, text in SOURCES.items() if path.is_relative_to(ROOT / "lib")]
    assert any(re.search(rf"\b{invariant}\b", text) for text in keeping)


def test_no_invariant_is_cited_that_is_not_stated() -> None:
    cited = {name for text in SOURCES.values() for name in CITED.findall(text)}
    assert cited <= invariants()


def test_each_test_that_design_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGES["DESIGN.md"]))
    written = "\n".join(text for path, text in SOURCES.items() if path.is_relative_to(ROOT / "tests"))
    assert len(named) >= 10
    assert [name for name in named if f"def {name}(" not in written] == []


def rows_of_sparks_crashes() -> list[list[str]]:
    table = PAGES["DESIGN.md"].partition("| dies, or is late | left | then | shown by |\n|---|---|---|---|\n")[2]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.partition("\n\n")[0].splitlines()]


def test_sparks_crashes_have_rows() -> None:
    assert len(rows_of_sparks_crashes()) >= 14


@pytest.mark.parametrize("row", rows_of_sparks_crashes(), ids=lambda row: row[0])
def test_each_crash_of_spark_names_the_tests_that_show_it(row: list[str]) -> None:
    *_, shown_by = row
    tests = shown_by.split(", ")
    assert all(re.fullmatch(r"`test_\w+`", test) for test in tests)
    written = "\n".join(path.read_text() for path in (ROOT / "tests/spark").glob("test_*.py"))
    assert [test for test in tests if f"\ndef {test.strip('`')}(" not in written] == []


def titles_cited() -> Iterator[tuple[str, str, str]]:
    for path, text in SOURCES.items():
        for page, title in TITLED.findall(text):
            yield str(path.relative_to(ROOT)), f"{page}.md", " ".join(re.sub(r"\n\s*#?", " ", title).split())


def titles_of(page: str) -> set[str]:
    """Return a page's headings and the bold words that begin its paragraphs, also without what is in parentheses."""
    titles = [title.strip(".") for title in re.findall(r"^(?:#+ (?:\d+\. )?|\*\*)(.+?)(?:\*\*|$)", page, re.MULTILINE)]
    return {*titles, *(title.partition(" (")[0] for title in titles)}


def test_each_title_that_is_cited_is_on_its_page() -> None:
    titles = {name: titles_of(page) for name, page in PAGES.items()}
    assert [cited for cited in titles_cited() if cited[2] not in titles[cited[1]]] == []


def test_the_code_cites_titles_and_no_numbers_of_sections() -> None:
    numbered = [
        str(path.relative_to(ROOT))
        for path, text in SOURCES.items()
        if path != Path(__file__) and NUMBERED.search(text)
    ]
    assert numbered == []
