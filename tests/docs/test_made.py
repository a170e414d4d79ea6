"""Pages that are made from the code are current, and have all that the code has.

Not here: the options of Spark, whose tables need it; see ``tests/spark/test_options_page.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fenceline import errors
from fenceline.model.topic_config import NAMES
from fenceline.settings import Settings
from fenceline_http.routes import ROUTES
from tests.support import prose
from tools.docs import cli, made, operations, settings
from tools.docs import errors as errors_page

ROOT = Path(__file__).parents[2]
AGAIN = "; run .venv/bin/python -m tools.docs make"
CODES = list(errors.TABLE)


def page(path: str) -> str:
    return (ROOT / path).read_text()


def headings(path: str) -> list[str]:
    return re.findall(r"^#{2,3} (.+?)(?: \{ #\S+ \})?$", page(path), re.MULTILINE)


def test_every_made_page_is_current() -> None:
    stale = made.stale()
    assert not stale, f"{', '.join(stale)}{AGAIN}"


@pytest.mark.parametrize("change", ["changed", "missing", "left over", "navigation"])
def test_a_stale_page_is_found_by_its_name_and_made_again(tmp_path: Path, change: str) -> None:
    (tmp_path / made.NAVIGATION).write_text(page(made.NAVIGATION))
    made.make(tmp_path)
    assert made.stale(tmp_path) == []
    path = {"left over": f"{cli.FOLDER}/gone.md", "navigation": made.NAVIGATION}.get(change, errors_page.PAGE)
    if change == "missing":
        (tmp_path / path).unlink()
    elif change == "left over":
        (tmp_path / path).write_text("# Gone\n")
    else:
        text = (tmp_path / path).read_text()
        (tmp_path / path).write_text(
            text.replace("reference/cli/lock.md", "reference/cli/old.md").replace("409", "410")
        )
    assert made.stale(tmp_path) == [path]
    assert made.make(tmp_path) == [path]
    assert made.stale(tmp_path) == []


def test_each_error_has_its_heading_and_no_other_is_there() -> None:
    assert headings(errors_page.PAGE) == CODES


def test_each_error_has_its_text_and_no_text_is_left_over() -> None:
    texts = {path.stem.upper() for path in errors_page.TEXTS.iterdir()}
    assert texts - set(CODES) == set(), "a text has no error"
    assert set(CODES) - texts == set(), "an error has no text"


@pytest.mark.parametrize("code", CODES)
def test_the_text_of_an_error_has_its_parts_a_line_for_each_way_and_a_link(code: str) -> None:
    text = errors_page.text_of(code)
    assert tuple(re.findall(r"^\*\*([^*]+)\.\*\*", text, re.MULTILINE)) == errors_page.PARTS
    assert tuple(re.findall(r"^- ([^:]+): ", text, re.MULTILINE)) == errors_page.WAYS
    assert "](" in text.partition("**Why it exists.**")[2]


@pytest.mark.parametrize("code", CODES)
def test_an_error_that_wrote_no_record_says_so_and_one_in_doubt_does_not(code: str) -> None:
    written = " ".join(errors_page.text_of(code).partition("**Is anything written.** ")[2].split())
    says_nothing = re.match(r"(No|Nothing|No record|The request only reads)\b", written)
    assert bool(says_nothing) == (errors.TABLE[code].next_step != "check")


def test_each_command_has_its_page_and_each_option_its_heading() -> None:
    found = cli.option_names()
    assert {name.words[0] for name in cli.commands()} == set(cli.COMMANDS)
    for path, names in found.items():
        shown = {name for heading in headings(path) for name in re.findall(r"(?:^|`)(--?[a-z][a-z-]*)", heading)}
        assert set(names) <= shown, path
        assert f"({path.rpartition('/')[2]})" in page(f"{cli.FOLDER}/index.md")
        assert path.removeprefix("docs/") in page(made.NAVIGATION)


def test_each_topic_setting_has_its_heading_and_says_what_follows() -> None:
    assert headings(settings.TOPIC_SETTINGS) == list(NAMES)
    assert set(settings.EFFECTS) == set(NAMES)


def test_each_variable_of_a_server_and_a_command_has_its_heading() -> None:
    found = set(re.findall(r"^### `(FENCELINE_\w+)`$", page(settings.SERVER_SETTINGS), re.MULTILINE))
    assert found == {*Settings("d").to_env(), *(name.strip("`") for name in settings.of_commands())}
    assert set(settings.meanings()) == {name.removeprefix("FENCELINE_").lower() for name in Settings("d").to_env()}


def test_each_operation_has_its_heading_and_its_line_in_the_index() -> None:
    found = operations.operation_names()
    names = [name for those in found.values() for name in those]
    assert len(names) == len({(route.method, route.path) for route in ROUTES})
    for path, those in found.items():
        assert headings(path) == those
    assert re.findall(r"^\| \[`(\w+)`\]", page(operations.INDEX), re.MULTILINE) == names


def test_each_made_page_reads_as_prose_and_names_its_source() -> None:
    for path in made.pages():
        assert re.search(r'\n\n<!-- Made by "python -m tools.docs make" from .+ -->\n$', page(path)), path
        assert list(prose.of_markdown(page(path))) == [], path
