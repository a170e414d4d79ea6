"""Every block of the pages that are typed does what its page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import blocks
from tests.docs.blocks import ROOT, Block, BlockError, Page, blocks_of, output_pattern
from tests.spark.driver_process import quick_options
from tests.spark.warm_daemon import warm_python

DOCS = ROOT / "docs"
TYPED = ("start", "learn", "recipes", "designs")
PAGES = [DOCS / "index.md", *sorted(page for folder in TYPED for page in (DOCS / folder).glob("*.md"))]
NEEDS = {"aws", "spark"}
# Blocks that no test runs. It may only fall.
SHOWN_MAX = 0


def needs_of(page: Path) -> set[str]:
    return {word for block in blocks_of(page.read_text()) for word in block.words & NEEDS}


def runs(page: Path) -> bool:
    return any(block.runs for block in blocks_of(page.read_text()))


PLAIN = [page for page in PAGES if runs(page) and not needs_of(page)]
ON_SPARK = [page for page in PAGES if runs(page) and needs_of(page) == {"spark"}]
# By day one page, since each block on Spark starts a JVM. CI runs the code of the reference's pages in Spark's session.
SPARK_BY_DAY = "recipes/spark-archive.md"


def run_page(page: Path, folder: Path) -> int:
    with Page(page, folder) as typed:
        return sum(1 for _ in typed.run_all())


@pytest.mark.slow
@pytest.mark.parametrize("page", PLAIN, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_pages_blocks_do_what_the_page_says(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path) > 0


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=[] if page == DOCS / SPARK_BY_DAY else pytest.mark.prove, id=str(page.relative_to(DOCS))
        )
        for page in ON_SPARK
    ],
)
def test_a_pages_blocks_on_spark_do_what_the_page_says(
    page: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The blocks are typed as they are. What they start is set by the environment to start sooner: Java, the plans, and
    # the Python of Spark's workers.
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", quick_options())
    monkeypatch.setenv("PYSPARK_PYTHON", str(warm_python(tmp_path_factory.mktemp("python"))))
    assert run_page(page, tmp_path) > 0


def test_no_further_block_is_only_shown() -> None:
    shown = [
        f"{page.relative_to(ROOT)}:{block.line}"
        for page in PAGES
        for block in blocks_of(page.read_text())
        if "shown" in block.words
    ]
    assert len(shown) <= SHOWN_MAX, shown


PASSES = "# Page\n\n```sh\necho one 1\n```\n\n```text\none 22\n```\n"


@pytest.mark.parametrize(
    ("page", "line"),
    [
        (PASSES.replace("echo one 1", "echo one 1; false"), 3),
        (PASSES.replace("one 22", "two"), 7),
        (PASSES.replace("```sh", "```sh exits=1"), 3),
        ('# Page\n\n```python title="a.py"\nraise ValueError\n```\n', 3),
        ("# Page\n\n```sh\nexit 0\n```\n", 3),
    ],
)
@pytest.mark.slow
def test_a_block_that_does_something_else_is_found_with_its_line(
    page: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BACKGROUND_S", 0)  # no block here has a job in the background
    path, folder = tmp_path / "page.md", tmp_path / "folder"
    folder.mkdir()
    path.write_text(page)
    with pytest.raises(BlockError, match=rf"page\.md:{line}: "):
        run_page(path, folder)


@pytest.mark.slow
def test_blocks_of_a_page_share_a_shell_a_folder_and_a_server(tmp_path: Path) -> None:
    path, folder = tmp_path / "page.md", tmp_path / "folder"
    folder.mkdir()
    script = '```python title="look.py"\nfrom fenceline import Client\n\nprint(list(Client("http://127.0.0.1:8080").topics()))\n```\n'
    path.write_text(f"{PASSES}\n```sh\nname=look.py\n```\n\n{script}\n```sh\npython $name\n```\n\n```text\n[]\n```\n")
    assert run_page(path, folder) == 4


def test_a_fence_says_what_a_block_is() -> None:
    text = '=== "Tab"\n\n    ```sh exits=1 shown\n    echo\n    ```\n\n```python title="a b.py" run=no\nx = 1\n```\n'
    assert blocks_of(text) == [
        Block("sh", "echo\n", 3, frozenset({"exits=1", "shown"}) - {"exits=1"}, {"exits": "1"}),
        Block("python", "x = 1\n", 7, frozenset(), {"title": "a b.py", "run": "no"}),
    ]


def test_an_output_may_leave_out_what_differs_each_time() -> None:
    assert output_pattern("took 12 ms\n…\nend").fullmatch("took 3 ms\nmore\nlines\nend")
    assert not output_pattern("took 12 ms").fullmatch("took long ms")


def test_a_page_may_line_up_the_columns_that_tabs_separate() -> None:
    assert output_pattern("name  count  left\nann   1            5").fullmatch("name\tcount\tleft\nann\t1\t\t5")
    assert not output_pattern("name  count").fullmatch("namecount")
