"""An extension of Markdown that keeps the words for tests out of a fence, such as ``aws`` or ``exits=1``.

Without it a fence with such a word is no code block: the site would show it as text.
``tests/docs/blocks.py`` says what each word means.
"""

from __future__ import annotations

import re
from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

_FENCE = re.compile(r"^(?P<fence>\s*```)(?P<language>\w+)(?P<words>(?: +[^`\n]*)?)$")
_TITLE = re.compile(r' title="[^"]*"')


def shown(line: str) -> str:
    """Return a line as the site shows it: of a fence's words only its language and its title."""
    found = _FENCE.match(line)
    if found is None or "{" in found["words"]:
        return line
    return f"{found['fence']}{found['language']}{''.join(_TITLE.findall(found['words']))}"


class _Fences(Preprocessor):  # type: ignore[misc]  # Markdown has no types
    def run(self, lines: list[str]) -> list[str]:
        return [shown(line) for line in lines]


class FencesExtension(Extension):  # type: ignore[misc]  # as above
    """The extension that ``mkdocs.yml`` names."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Markdown's name)
        """Register it before the fences are parsed."""
        md.preprocessors.register(_Fences(md), "fences_for_tests", 100)


def makeExtension(**settings: Any) -> FencesExtension:  # noqa: N802 (Markdown's name)
    """Make the extension, as Markdown asks for it."""
    return FencesExtension(**settings)
