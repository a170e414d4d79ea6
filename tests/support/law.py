"""The protocol and the contract as the chapters below ``docs`` state them.

Rule: a test that holds the code to a rule reads the rule here, and no other copy of it.
"""

from __future__ import annotations

import re

from tests.support.readme import ROOT


def _chapters(folder: str) -> dict[str, str]:
    return {page.stem: page.read_text() for page in sorted((ROOT / folder).glob("*.md"))}


PROTOCOL = _chapters("docs/protocol")
CONTRACT = _chapters("docs/reference/http")

# A heading ``## I9``, what a table of contents shows for it, and the text up to the next heading.
_INVARIANT = re.compile(r"^## (I\d+)(?: \{[^}]*\})?\n(.+?)(?=^## |^\*Shown by\*|\Z)", re.MULTILINE | re.DOTALL)
_PROMISE = re.compile(r"^(\d)\. (\*\*.+?)(?=^\d\. |^## )", re.MULTILINE | re.DOTALL)

INVARIANTS = dict(_INVARIANT.findall(PROTOCOL["invariants"]))
PROMISES = dict(_PROMISE.findall(PROTOCOL["index"]))


def plain(text: str) -> str:
    """Return ``text`` without links, the marks of Markdown, and the breaks of lines."""
    linked = re.sub(r"\[((?:`[^`]*`|[^\[\]`])+)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[*`\\]", "", linked).split())
