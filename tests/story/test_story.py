"""The stories keep their rule: twelve in order, public names alone, and a quotation of the protocol, word for word."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import fenceline
import tests.story
from tests.support.law import INVARIANTS, PROMISES, plain

STORIES = sorted(Path(__file__).parent.glob("s[0-9][0-9]_*.py"))
ALLOWED = {"fenceline", "fenceline_testing", "pytest"} | sys.stdlib_module_names
QUOTED = re.compile(r'Protocol, (I\d+|promise \d): "(.+?)"\n', re.DOTALL)
LINES_MAX = 60


def test_they_are_twelve_and_the_package_lists_them_in_order() -> None:
    assert [int(story.name[1:3]) for story in STORIES] == list(range(1, 13))
    assert re.findall(r"``(s\d\d_\w+)``", tests.story.__doc__ or "") == [story.stem for story in STORIES]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_a_story_uses_only_what_is_public_and_is_short(story: Path) -> None:
    source = story.read_text()
    assert len(source.splitlines()) <= LINES_MAX
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                assert {name.name for name in names} <= ALLOWED
            case ast.ImportFrom(module="fenceline", names=names):
                assert {name.name for name in names} <= set(fenceline.__all__)
            case ast.ImportFrom(module, _, level):
                assert level == 0
                assert module in ALLOWED or str(module).partition(".")[0] in sys.stdlib_module_names
            case ast.Attribute(attr=name):
                assert not name.startswith("_")
            case _:
                pass


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_a_story_quotes_one_invariant_or_promise_word_for_word(story: Path) -> None:
    [(name, quoted)] = QUOTED.findall(ast.get_docstring(ast.parse(story.read_text())) or "")
    stated = PROMISES[name.removeprefix("promise ")] if name.startswith("promise") else INVARIANTS[name]
    assert plain(quoted) in plain(stated)
