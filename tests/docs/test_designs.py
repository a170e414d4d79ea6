"""The five designs: each page has the same parts, each row of a design names a test, and the index lists every row."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

DESIGNS = ROOT / "docs/designs"
PAGES = sorted(page for page in DESIGNS.glob("*.md") if page.name != "index.md")
PARTS = [
    "What it asked for",
    "Feature by feature",
    "What is different on purpose",
    "What is left out",
    "A session to type",
]
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
INDEX = (DESIGNS / "index.md").read_text()


def rows_of(text: str, first: str) -> list[list[str]]:
    """Return the rows of each table whose first column has this name."""
    rows, is_ours = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            is_ours = False
        elif cells[0] == first:
            is_ours = True
        elif is_ours and not set(cells[0]) <= {"-", ":"}:
            rows.append(cells)
    return rows


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_design_has_the_five_parts_in_order(page: Path) -> None:
    assert re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE) == PARTS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_feature_says_what_is_theirs_and_ours_and_why_and_names_a_test(page: Path) -> None:
    rows = rows_of(page.read_text(), "feature")
    assert len(rows) >= 10
    for row in rows:
        assert len(row) == 5, row
        assert all(row), row
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`|`tests/story/s\d\d_\w+\.py", row[4]), row


def test_the_index_lists_each_feature_once_and_counts_them() -> None:
    listed = rows_of(INDEX, "design")
    features = [row for row in listed if len(row) == 3]
    for page in PAGES:
        here = Counter(row[1] for row in features if f"({page.name})" in row[0])
        assert here, page.name
        assert max(here.values()) == 1
        missing = [row[0] for row in rows_of(page.read_text(), "feature") if LINK.sub(r"\1", row[0]) not in here]
        assert missing == [], page.name
    for name, _, *counts in (row for row in listed if len(row) == 5):
        page = re.search(r"\((.*?)\)", name)
        assert page is not None
        answers = Counter(row[2] for row in features if page[0] in row[0])
        assert [int(count) for count in counts] == [answers["yes"], answers["different"], answers["no"]], name
