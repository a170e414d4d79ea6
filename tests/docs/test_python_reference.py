"""Each public name of the package is on exactly one page of the Python reference, whose programs run."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import fenceline
from fenceline import errors
from tests.docs.blocks import ROOT, blocks_of
from tests.docs.test_blocks import run_page

FOLDER = ROOT / "docs/reference/python"
PAGES = sorted(FOLDER.glob("*.md"))
NAMED = re.compile(r"^::: fenceline\.(\w+)$|^## `(\w+)`$", re.MULTILINE)


def test_each_public_name_is_on_exactly_one_page() -> None:
    found = Counter(one or other for page in PAGES for one, other in NAMED.findall(page.read_text()))
    assert dict(found) == dict.fromkeys(fenceline.__all__, 1)


def test_each_name_of_the_overview_is_on_the_page_beside_it() -> None:
    rows = re.findall(r"^\| \[\w+\]\((\w+\.md)\) \| (.*) \|$", (FOLDER / "index.md").read_text(), re.MULTILINE)
    assert {page for page, _ in rows} == {page.name for page in PAGES} - {"index.md"}
    for page, names in rows:
        on_page = {one or other for one, other in NAMED.findall((FOLDER / page).read_text())}
        assert set(re.findall(r"`(\w+)`", names)) <= on_page


def test_each_public_call_of_a_client_is_in_the_table_and_in_the_order_of_the_page() -> None:
    text = (FOLDER / "client.md").read_text()
    [listed] = re.findall(r"members: \[([^\]]*)\]", text)
    assert sorted(listed.split(", ")) == sorted(name for name in dir(fenceline.Client) if name[0] != "_")
    assert re.findall(r"\[`(\w+)`\]\(#fenceline\.Client\.\1\)", text) == listed.split(", ")


def test_each_leaf_of_the_errors_has_a_docstring() -> None:
    assert [code for code, leaf in errors.TABLE.items() if not (leaf.__doc__ or "").strip()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_a_program_before_its_names(page: Path) -> None:
    text = page.read_text()
    assert any(block.runs for block in blocks_of(text))
    assert text.index("```python") < f"{text}:::".index(":::")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_programs_of_a_page_run(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path) > 0
