"""The pages that compare begin with the other one's reasons, and each figure of others has a source and a date."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

FOLDER = ROOT / "docs/compare"
PAGES = sorted(page.name for page in FOLDER.glob("*.md"))
OTHERS = sorted(set(PAGES) - {"index.md"})
ROWS = (
    "run by",
    "an append costs",
    "an append takes",
    "order",
    "writers",
    "transactions",
    "regions",
    "Spark",
    "quotas",
)
LOCK_ROWS = ("run by", "a lock costs", "taking it takes", *ROWS[3:])
LINK = re.compile(r"\[([^\]]*)\]\(https?://[^)]*\), (\d{4}-\d\d)\)")
OURS = re.compile(r"\b(fenceline|make) [a-z]")
# A figure begins with a digit, or with a currency, and is no part of a name such as S3, KIP-27 or 2.8 after "since".
FIGURE = re.compile(r"(?<![\w.-])\$?\d[\d,.]*(?![\w-]*\])")


def rows(text: str) -> list[list[str]]:
    """Return the cells of each row of a page's tables, without heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if not re.fullmatch(r"[|\s:-]+", line) and not line.startswith(("| compared |", "| system |"))
    ]


def unsourced(cell: str) -> list[str]:
    """Return the figures of a cell that has no source with a date."""
    if LINK.search(cell):
        return []
    return FIGURE.findall(re.sub(r"\[[^\]]*\]\([^)]*\)|`[^`]*`|\b(?:19|20)\d\d-\d\d(?:-\d\d)?\b", "", cell))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_begins_with_the_reasons_for_the_other_one(page: str) -> None:
    paragraphs = (FOLDER / page).read_text().split("\n\n")
    assert paragraphs[1].startswith("Take ")
    if page != "index.md":
        assert not paragraphs[1].startswith("Take fenceline")
        assert paragraphs[2].startswith("Take fenceline when ")


@pytest.mark.parametrize("page", OTHERS)
def test_each_page_compares_the_same_things(page: str) -> None:
    text = (FOLDER / page).read_text()
    names = [row[0] for row in rows(text)]
    wanted = LOCK_ROWS if page == "dynamodb-locks.md" else ROWS
    assert [name for name in wanted if name not in names] == []
    assert "\n## How to move\n" in text


@pytest.mark.parametrize("page", OTHERS)
def test_each_figure_of_others_has_a_source_and_a_month(page: str) -> None:
    missing = [
        (row[0], unsourced(cell))
        for row in rows((FOLDER / page).read_text())
        if row[0] != "fenceline"
        for cell in (row[1:-1] if len(row) == 3 else row[1:])
        if unsourced(cell)
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_each_price_of_ours_names_the_command_that_prints_it(page: str) -> None:
    cells = [row[-1] for row in rows((FOLDER / page).read_text()) if len(row) in (2, 3)]
    assert [cell for cell in cells if "$" in cell and not OURS.search(cell)] == []


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("5 ms at the 99th percentile", ["5", "99"]),
        ("$0.05 per GB", ["$0.05"]),
        ("5 ms ([Theirs](https://example.com/a), 2026-11)", []),
        ("5 ms ([Theirs](https://example.com/a))", ["5"]),
        ("as KIP-27 and S3 say", []),
        ("not published", []),
    ],
)
def test_a_figure_without_a_source_is_found(cell: str, found: list[str]) -> None:
    assert [figure.rstrip(".,") for figure in unsourced(cell)] == found
