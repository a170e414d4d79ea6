"""The protocol and the contract against the code and the tests that cite them: invariants, titles, modules."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.law import CONTRACT, INVARIANTS, PROTOCOL
from tests.support.readme import ROOT

TOPS = ("lib", "functions", "infra", "tests", "benchmarks", "models")
SOURCES = {
    path: path.read_text() for top in TOPS for end in ("*.py", "*.tla") for path in sorted((ROOT / top).rglob(end))
}
NAV = (ROOT / "mkdocs.yml").read_text()
# The index leads to the others, and the core is a first reading.
CHAPTERS = sorted(PROTOCOL.keys() - {"index", "core"})
WORDS_MAX = 3_000
CITED = re.compile(r"\bI\d{1,2}\b")
# A title may be broken over two lines, of a comment or of a docstring. Several titles may follow one word.
TITLE = r'"[A-Z][^"]+"'
TITLED = re.compile(
    rf"\b([Pp]rotocol|[Cc]ontract)(?:,|:|'s| says under)\s+(?:#\s+)?({TITLE}(?:(?:,|,? and)\s+(?:#\s+)?{TITLE})*)"
)
# In the library a title in parentheses is the protocol's.
ALONE = re.compile(r'(?<=\s)\("([A-Z][^"()]+)"(?: and "([A-Z][^"()]+)")?\)')
NUMBERED = re.compile(r"(?<!RFC 4648 )\bsections? \d+")
CODE = re.compile(r"^    - \*Code\*: (.+?)(?=\n\n)", re.MULTILINE | re.DOTALL)
SHOWN_BY = re.compile(r"^\*Shown by\*\n\n((?:- `.+`\n)+)\Z", re.MULTILINE)
PLACES = re.compile(r"`((?:lib|functions|infra|models|tests|benchmarks|examples)/[^`]*)`")


def headings_of(page: str) -> list[str]:
    """Return a page's headings, without attributes and without what is in blocks of code."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    return [re.sub(r" \{[^}]*\}$", "", title) for title in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)]


def homes(pages: Mapping[str, str]) -> dict[str, list[str]]:
    """Return, by title, the pages that have it, also without what is in parentheses."""
    found = defaultdict(list)
    for name, page in pages.items():
        headings = headings_of(page)
        for title in {*headings, *(title.partition(" (")[0] for title in headings)}:
            found[title].append(name)
    return found


def test_the_invariants_are_numbered_without_a_gap() -> None:
    assert list(INVARIANTS) == [f"I{number}" for number in range(1, len(INVARIANTS) + 1)]
    assert len(INVARIANTS) >= 29


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_each_invariant_is_cited_by_the_tests_that_hold_it(invariant: str) -> None:
    holding = [text for path, text in SOURCES.items() if path.is_relative_to(ROOT / "tests") and path != Path(__file__)]
    assert any(re.search(rf"\b{invariant}\b", text) for text in holding)


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_each_invariant_is_cited_by_the_code_that_keeps_it(invariant: str) -> None:
    keeping = [text for path, text in SOURCES.items() if path.is_relative_to(ROOT / "lib")]
    assert any(re.search(rf"\b{invariant}\b", text) for text in keeping)


def test_no_invariant_is_cited_that_is_not_stated() -> None:
    cited = {name for text in [*SOURCES.values(), *PROTOCOL.values()] for name in CITED.findall(text)}
    assert cited <= set(INVARIANTS)


def test_a_title_is_on_one_chapter_alone() -> None:
    assert {title: pages for title, pages in homes(PROTOCOL).items() if len(pages) > 1} == {}


def citations() -> Iterator[tuple[str, str, str]]:
    for path, text in SOURCES.items():
        for page, titles in TITLED.findall(text):
            for title in re.findall(r'"([^"]+)"', titles):
                words = " ".join(re.sub(r"\n\s*#?", " ", title).split())
                yield str(path.relative_to(ROOT)), page.lower(), words


def test_the_code_cites_titles_that_a_page_has() -> None:
    assert len(list(citations())) >= 200
    pages = {"protocol": homes(PROTOCOL), "contract": homes(CONTRACT)}
    assert [cited for cited in citations() if not pages[cited[1]].get(cited[2])] == []


def test_a_title_that_the_library_cites_in_parentheses_is_on_a_chapter() -> None:
    titles = homes(PROTOCOL)
    cited = {
        (str(path.relative_to(ROOT)), " ".join(title.split()))
        for path, text in SOURCES.items()
        if path.is_relative_to(ROOT / "lib/fenceline")
        for title in {title for both in ALONE.findall(text) for title in both if title}
    }
    assert len(cited) >= 40
    assert [one for one in sorted(cited) if not titles.get(one[1])] == []


def test_the_code_cites_titles_and_no_numbers_of_sections() -> None:
    numbered = [
        str(path.relative_to(ROOT))
        for path, text in SOURCES.items()
        if path != Path(__file__) and NUMBERED.search(text)
    ]
    assert numbered == []


def test_the_pages_of_before_are_named_nowhere() -> None:
    before = re.compile(r"\b(?:DESIGN|API|PROMISES)\.md\b")
    pages = [*ROOT.glob("*.md"), *(page for top in TOPS for page in (ROOT / top).rglob("*.md"))]
    texts = {**SOURCES, **{page: page.read_text() for page in pages}}
    assert [str(path) for path, text in texts.items() if path != Path(__file__) and before.search(text)] == []
    assert not list((ROOT / "lib/fenceline").rglob("*.md"))  # a wheel ships no pages


@pytest.mark.parametrize("chapter", sorted(PROTOCOL))
def test_a_chapter_is_in_the_navigation_and_on_the_index(chapter: str) -> None:
    assert f": protocol/{chapter}.md\n" in NAV or chapter == "index"
    assert f"]({chapter}.md)" in PROTOCOL["index"] or chapter == "index"


@pytest.mark.parametrize("page", sorted(CONTRACT))
def test_a_page_of_the_contract_is_in_the_navigation_and_on_its_index(page: str) -> None:
    assert f": reference/http/{page}.md\n" in NAV or page == "index"
    assert f"]({page}.md)" in CONTRACT["index"] or page == "index"


@pytest.mark.parametrize("chapter", sorted(PROTOCOL))
def test_a_chapter_can_be_read_at_once(chapter: str) -> None:
    assert len(PROTOCOL[chapter].split()) <= WORDS_MAX


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_says_what_it_decides_and_names_its_code_and_its_tests(chapter: str) -> None:
    _, decides, *_ = PROTOCOL[chapter].split("\n\n")
    assert decides.startswith(('!!! note "This chapter decides ', '!!! note "This chapter says '))
    assert PLACES.findall(CODE.findall(PROTOCOL[chapter])[0])
    tests = PLACES.findall(SHOWN_BY.findall(PROTOCOL[chapter])[0])
    assert all(re.fullmatch(r"tests/[\w/]+\.py(::test_\w+)?", test) for test in tests)


@pytest.mark.parametrize("chapter", sorted(PROTOCOL))
def test_what_a_chapter_names_is_there(chapter: str) -> None:
    for named in PLACES.findall(PROTOCOL[chapter]):
        path, _, test = named.partition("::")
        assert (ROOT / path).exists(), named
        assert not test or f"\ndef {test}(" in (ROOT / path).read_text(), named
    written = "\n".join(text for path, text in SOURCES.items() if path.is_relative_to(ROOT / "tests"))
    bare = set(re.findall(r"`(test_\w+)`", PROTOCOL[chapter]))
    assert [name for name in bare if f"def {name}(" not in written] == []


def test_each_module_of_the_log_is_named_by_a_chapter() -> None:
    """By its own path, or by that of a package that has it."""
    named = {place for chapter in CHAPTERS for place in PLACES.findall(CODE.findall(PROTOCOL[chapter])[0])}
    modules = (path.relative_to(ROOT) for path in (ROOT / "lib/fenceline").rglob("*.py") if path.name != "__init__.py")
    around = ({str(module), *(f"{folder}/" for folder in module.parents[:-3])} for module in modules)
    assert [paths for paths in around if not paths & named] == []


def rows_of_sparks_crashes() -> list[list[str]]:
    table = PROTOCOL["spark"].partition("| dies, or is late | left | then | shown by |\n|---|---|---|---|\n")[2]
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
