"""The site builds strictly, each page can be reached, and what a page names exists."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tools.docs import markdown

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = {page.relative_to(DOCS).as_posix(): page.read_text() for page in PAGES}
PICTURES = sorted((DOCS / "assets").glob("*.svg"))
FOLDERS = r"(?:lib|functions|infra|models|tests|tools|benchmarks|examples|docs)/"
NAMED = re.compile(rf"`({FOLDERS}[\w./*-]*(?:::\w+)?)`")
OUTSIDE = re.compile(r"https?://(?!127\.0\.0\.1|localhost|…|example\.com|[\w.-]+\.amazonaws\.com)[^\s)>\"'`\]]+")
# Pages of reference and of the designs have tables of everything; protocol chapters have a bound of their own.
READ_AT_ONCE = {"compare", "index.md", "learn", "operate", "recipes", "start", "understand"}
LINKS = DOCS / "links.txt"


def addresses() -> set[str]:
    """Return the address of each page, below the site."""
    return {re.sub(r"(^|/)index$", r"\1", path.removesuffix(".md")).rstrip("/") + "/" for path in TEXTS}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Give a folder with our configuration and two pages, the second of which the test writes."""
    config = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(
        f"{config}\nnav:\n  - Start:\n      - First: index.md\n      - Second: second.md\n"
    )
    (tmp_path / "docs").mkdir()
    shutil.copytree(DOCS / "assets", tmp_path / "docs/assets")
    (tmp_path / "docs/index.md").write_text("# First\n\n## A part\n\n[Second](second.md)\n")
    return tmp_path


def built(folder: Path, second: str) -> subprocess.CompletedProcess[str]:
    (folder / "docs/second.md").write_text(f"# Second\n\n{second}\n")
    zensical = Path(sys.executable).with_name("zensical")
    command = [zensical, "build", "--strict", "-f", "mkdocs.yml"]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_pages_that_are_right_are_built(small: Path) -> None:
    done = built(small, '[A part](index.md#a-part)\n\n--8<-- "assets/append.svg"')
    assert done.returncode == 0, done.stdout + done.stderr
    page = (small / "build/site/second/index.html").read_text()
    assert "<svg" in page
    assert OUTSIDE.findall(re.sub(r"xmlns(:\w+)?=\"[^\"]*\"", "", page)) == []


@pytest.mark.slow
def test_a_block_with_words_for_tests_is_a_block_without_them(small: Path) -> None:
    """All heads on one page, because a build takes seconds: each by itself, and each in a tab."""
    heads = ("sh aws", "sh exits=1", 'python spark title="a.py" run=no', 'json title="a b.json"')
    blocks = [f'```{head}\necho one\n```\n\n=== "Tab"\n\n    ```{head}\n    echo two\n    ```' for head in heads]
    done = built(small, "\n\n".join(blocks))
    assert done.returncode == 0, done.stdout + done.stderr
    page = (small / "build/site/second/index.html").read_text()
    found = {language: page.count(f'class="language-{language} highlight"') for language in ("sh", "python", "json")}
    assert found == {"sh": 4, "python": 2, "json": 2}
    assert re.findall(r'class="filename">([^<]*)<', page) == ["a.py", "a.py", "a b.json", "a b.json"]
    assert not re.search(r"```|exits=|run=no|>\w+ (?:aws|spark)", page)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong", ["[None](none.md)", "[None](index.md#none)", '--8<-- "assets/none.svg"', "::: fenceline.NoSuchName"]
)
def test_what_is_broken_fails_the_build_with_its_file(small: Path, wrong: str) -> None:
    done = built(small, wrong)
    assert done.returncode != 0
    assert re.search(r"second\.md|none\.svg|NoSuchName", done.stdout + done.stderr)


def test_each_page_is_in_the_navigation_once() -> None:
    assert sorted(path for _, _, path in markdown.navigation()) == sorted(TEXTS)


@pytest.mark.parametrize("page", [page for page in TEXTS if page.partition("/")[0] in READ_AT_ONCE])
def test_a_page_can_be_read_in_one_sitting(page: str) -> None:
    assert len(TEXTS[page].split()) <= 1200


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_each_column_of_a_table_has_a_name(page: str) -> None:
    heads = re.findall(r"^(\|.*\|)\n\|[-:| ]+\|$", TEXTS[page], re.MULTILINE)
    assert [head for head in heads if re.search(r"\|\s*\|", head)] == []


def test_the_navigation_has_nine_words() -> None:
    assert len(dict.fromkeys(section for section, _, _ in markdown.navigation())) == 9


def test_each_other_file_is_used_by_a_page() -> None:
    all_text = "\n".join([*TEXTS.values(), (ROOT / "mkdocs.yml").read_text()])
    read_by_tools = {"redirects.json", "addresses.txt", "links.txt"}
    others = [
        path for path in DOCS.rglob("*") if path.is_file() and path.suffix != ".md" and path.name not in read_by_tools
    ]
    assert [path for path in others if path.relative_to(DOCS).as_posix() not in all_text] == []


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_each_file_and_test_that_a_page_names_exists(page: str) -> None:
    missing = []
    for named in set(NAMED.findall(TEXTS[page])):
        path, _, name = named.partition("::")
        found = list(ROOT.glob(path.rstrip("/"))) if "*" in path else [ROOT / path]
        if not found or not found[0].exists() or (name and not re.search(rf"\bdef {name}\(", found[0].read_text())):
            missing.append(named)
    assert missing == []


def test_each_address_that_was_published_leads_somewhere() -> None:
    """``addresses.txt`` may only grow: a page that moves leaves a line in ``redirects.json``."""
    published = (DOCS / "addresses.txt").read_text().split()
    moved = json.loads((DOCS / "redirects.json").read_text())
    assert published == sorted(published)
    assert [address for address in published if address not in addresses() | moved.keys()] == []
    assert [new for new in moved.values() if new not in addresses()] == []
    assert sorted(addresses() - set(published)) == [], "add these to docs/addresses.txt"


def test_each_address_outside_is_in_one_list() -> None:
    """``make docs-links`` looks at them by hand, because CI has no network."""
    used = {address.rstrip(".,;") for text in TEXTS.values() for address in OUTSIDE.findall(text)}
    assert LINKS.read_text().split() == sorted(used)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_can_be_read_aloud_and_follows_the_themes_colours(picture: Path) -> None:
    text = picture.read_text()
    assert len(text.encode()) <= 8192
    if picture.name == "mark.svg":
        return
    assert re.search(r'<svg class="picture"[^>]* role="img" aria-label="[^"]{20,}"', text)
    assert re.findall(r'\bstyle=|\b(?:fill|stroke|color)="|#[0-9a-fA-F]{3,6}\b|<image|<script|\n\s*\n', text) == []


def test_copies_for_programs_are_written(tmp_path: Path) -> None:
    markdown.write_copies(DOCS, tmp_path)
    index = (tmp_path / "llms.txt").read_text()
    for _, _, path in markdown.navigation():
        assert f"({path})" in index
        copy = (tmp_path / path).read_text()
        assert copy.startswith("# ")
        assert "--8<--" not in copy
    assert "[Picture: " in (tmp_path / "understand/fencing.md").read_text()
    assert "### `ProducerFencedError`" in (tmp_path / "reference/python/errors.md").read_text()
    assert (tmp_path / "llms-full.txt").read_text().count("<!-- ") >= len(TEXTS)
