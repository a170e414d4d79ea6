"""The reading copies of the site: each page as Markdown, ``llms.txt`` with all addresses, and one file of all.

A page at ``understand/fencing/`` has its copy at ``understand/fencing.md``. Snippets are put in. A picture becomes its
sentence, because the steps under it say the same in words. A name of the Python reference becomes its docstring.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import yaml

from tools.docs import fences

ROOT = Path(__file__).parents[2]
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)  # what the site's tool reads, such as "not searched"
_SNIPPET = re.compile(r'^(?P<indent>[ ]*)--8<-- "(?P<path>[^":]+)(?::(?P<part>[\w-]+))?"[ ]*$', re.MULTILINE)
_LABEL = re.compile(r'aria-label="([^"]*)"')
_OBJECT = re.compile(r"^::: (?P<name>[\w.]+)\n(?P<options>(?:[ ]{4}.*\n?)*)", re.MULTILINE)
_CARDS = re.compile(r"^</?div[^>]*>\n*", re.MULTILINE)


def navigation() -> list[tuple[str, str, str]]:
    """Return (section, title, path below ``docs/``) of each page, in the order of the navigation."""
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)
    return [
        (section, title, path)
        for entry in config["nav"]
        for section, pages in entry.items()
        for title, path in _pages(pages)
    ]


def _pages(entries: list[Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for entry in entries:
        if isinstance(entry, str):
            found.append(("", entry))
            continue
        for title, below in entry.items():
            found += _pages(below) if isinstance(below, list) else [(title, below)]
    return found


def write_copies(docs: Path, site: Path) -> None:
    """Write the copies of all pages of the navigation into a built site."""
    index = ["# fenceline\n", "> A partitioned log on object storage that decides who may write.\n"]
    whole = []
    last = ""
    for section, _, path in navigation():
        text = copy_of(docs / path, docs)
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
        if section != last:
            index.append(f"\n## {section}\n")
            last = section
        index.append(f"- [{title_of(text)}]({path}): {first_sentence(text)}")
        whole.append(f"<!-- {path} -->\n\n{text}")
    (site / "llms.txt").write_text("\n".join(index) + "\n")
    (site / "llms-full.txt").write_text("\n\n".join(whole))


def copy_of(page: Path, docs: Path) -> str:
    """Return a page's text with its snippets, pictures and docstrings put in."""
    text = _SNIPPET.sub(lambda found: _snippet(found, docs), _FRONT_MATTER.sub("", page.read_text()))
    text = _OBJECT.sub(lambda found: documented(found["name"], found["options"]), text)
    text = "\n".join(map(fences.shown, text.split("\n")))
    return _CARDS.sub("", text)


def title_of(text: str) -> str:
    """Return a page's first heading."""
    return next((line[2:] for line in text.splitlines() if line.startswith("# ")), "")


def first_sentence(text: str) -> str:
    """Return the first sentence below a page's heading, without links and marks."""
    for block in text.split("\n\n")[1:]:
        if block.strip() and not block.startswith(("#", "|", "!", "`", "-", "=", "<", "[Picture")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split())).replace("**", "")
            return re.split(r"(?<=[.!?:]) ", plain, maxsplit=1)[0]
    return ""


def _snippet(found: re.Match[str], docs: Path) -> str:
    path = next(base / found["path"] for base in (docs, ROOT) if (base / found["path"]).exists())
    text = path.read_text()
    if path.suffix == ".svg":
        [label] = _LABEL.findall(text)
        return f"{found['indent']}[Picture: {label}]"
    if found["part"]:
        text = re.split(rf".*--8<-- \[(?:start|end):{found['part']}\].*\n", text)[1]
    return "\n".join(f"{found['indent']}{line}".rstrip() for line in textwrap.dedent(text).splitlines())


def documented(name: str, options: str) -> str:
    """Return the docstring of a name, and of its public members, as Markdown."""
    module, _, attribute = name.rpartition(".")
    documented_object = getattr(importlib.import_module(module), attribute) if module else importlib.import_module(name)
    chosen = re.search(r"members: \[([^\]]*)\]", options)
    members = (
        [one.strip() for one in chosen[1].split(",")]
        if chosen
        else [one for one in dir(documented_object) if one[0] != "_"]
    )
    parts = [f"## `{name}`\n\n{inspect.getdoc(documented_object) or ''}"]
    for member in members:
        value = getattr(documented_object, member, None)
        if inspect.ismodule(documented_object):
            if inspect.isclass(value) and value.__module__ == name:
                parts.append(f"### `{member}`\n\n{inspect.getdoc(value) or ''}")
        elif inspect.isclass(documented_object) and inspect.isfunction(value):
            parts.append(f"### `{member}{inspect.signature(value)}`\n\n{inspect.getdoc(value) or ''}")
    return "\n\n".join(parts) + "\n"
