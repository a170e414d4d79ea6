"""Markdown of what the code says: paragraphs, tables, and words that need to be code.

Rule: the same input gives the same text, so that a page changes only where the code did.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 130
_QUOTED = re.compile(r"'((?:fenceline|docker|pip|aws) [^']+|[a-z][a-z-]+(?: [a-z-]+)?|[A-Za-z]\w*_\w+)'")
# A word that Markdown would read otherwise, or that is typed as it is: options, paths, names with underscores, values.
_TYPED = re.compile(r"--?[A-Za-z]|.*[_*<>\\{}\[\]|=%/]")


def made_from(what: str) -> str:
    """Return the last line of a made page, which readers of the site do not see."""
    return f'\n<!-- Made by "python -m tools.docs make" from {what}: edit that, and make it again. -->\n'


def with_code(text: str) -> str:
    """Return plain prose as Markdown: what is typed, and what Markdown would read otherwise, becomes code."""
    text = " ".join(text.split())
    parts = re.split(r"(`[^`]+`)", _QUOTED.sub(r"`\1`", text.replace("``", "`")))
    return "".join(part if part.startswith("`") else re.sub(r"\S+", _word, part) for part in parts)


def _word(found: re.Match[str]) -> str:
    word = found[0]
    before, core, after = re.fullmatch(r"([(\"]*)(.*?)([).,;:\"…]*)", word, re.DOTALL).groups()  # type: ignore[union-attr]
    if core.count("(") > core.count(")") and after.startswith(")"):
        core, after = core + ")", after[1:]
    return f"{before}`{core}`{after}" if _TYPED.match(core) else word


def paragraphs(text: str) -> str:
    """Return plain prose, its paragraphs parted by blank lines, as Markdown of our width."""
    return "\n\n".join(filled(with_code(part)) for part in text.strip().split("\n\n") if part.strip())


def filled(markdown: str, indent: str = "") -> str:
    """Return Markdown of one paragraph, wrapped."""
    whole = re.sub(r"`[^`]+`|\[[^\]]*\]\(", lambda found: found[0].replace(" ", "\0"), markdown)
    lines = textwrap.fill(whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def block(text: str, language: str = "") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"
