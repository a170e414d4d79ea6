"""Builds the site: pages by Zensical, strictly; then Markdown copies, an index for programs, and moved addresses.

Rule: a broken link, anchor or snippet fails the build, and what was built before stays as it was.

Not here: the pages that are made from the code.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx

from tools.docs import markdown

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
BUILT = ROOT / "build/site"  # as mkdocs.yml says
LATEST = "latest"
_VERSION = re.compile(r"\d+(\.\d+)*")
_MOVED = (
    '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Moved</title>\n'
    '<meta http-equiv="refresh" content="0; url={to}">\n'
    '<p>This page has moved to <a href="{to}">{to}</a>.</p>\n</html>\n'
)


class BuildError(Exception):
    """The site was not built; the message says what to do."""


def build(version: str | None = None) -> Path:
    """Build the site and return its folder: ``site/``, or ``site/VERSION``.

    Args:
        version: A release's number, such as ``0.1``. It becomes the latest one; older ones stay.

    Raises:
        BuildError: A page is wrong, or the version is not a number.
    """
    if version is None:
        _run(ROOT / "mkdocs.yml")
        kept = {name: SITE / name for name in _versions()}
        _finish(BUILT)
        _replace(SITE, BUILT, kept=kept)
        return SITE
    if not _VERSION.fullmatch(version):
        raise BuildError(f"a version is numbers with points, such as 0.1: version={version}")
    with_selector = ROOT / ".mkdocs-version.yml"
    try:
        selector = f"extra:\n  version: {{provider: mike, default: {LATEST}}}\n"
        with_selector.write_text((ROOT / "mkdocs.yml").read_text().replace("extra:\n", selector, 1))
        _run(with_selector)
    finally:
        with_selector.unlink(missing_ok=True)
    _finish(BUILT)
    SITE.mkdir(exist_ok=True)
    _replace(SITE / LATEST, BUILT, kept={}, copy=True)
    _replace(SITE / version, BUILT, kept={})
    _list_versions(version)
    _write_moved(SITE / "index.html", f"{LATEST}/")
    return SITE / version


def serve() -> int:
    """Show the site at http://127.0.0.1:8000 until Ctrl-C, and build a page again when its file changes."""
    return subprocess.run(
        [*_zensical("serve"), "-f", "mkdocs.yml", "-a", "127.0.0.1:8000"], cwd=ROOT, check=False
    ).returncode


def broken_links() -> list[str]:
    """Ask each address outside that the pages name, and return those that do not answer, each with its reason."""
    found = []
    with httpx.Client(follow_redirects=True, timeout=20) as client:
        for address in (ROOT / "docs/links.txt").read_text().split():
            try:
                client.get(address).raise_for_status()
            except httpx.HTTPError as error:
                found.append(f"{address}: {error}")
    return found


def _zensical(*arguments: str) -> list[str]:
    # By -m, because the working directory is then on Python's path, where our extension of Markdown is.
    return [sys.executable, "-m", "zensical", *arguments]


def _run(config: Path) -> None:
    command = [*_zensical("build", "--strict", "-f"), config.name]
    built = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if built.returncode:
        printed = (built.stdout + built.stderr).partition("Traceback")[0]
        raise BuildError(f"{printed.strip()}\nthe site was not built: mend what is named above")


def _finish(folder: Path) -> None:
    for name in ("addresses.txt", "links.txt", "redirects.json"):  # what tests and this module read
        (folder / name).unlink(missing_ok=True)
    for page in folder.rglob("*.html"):
        page.write_text(_named_navigation(page.read_text()))
    markdown.write_copies(ROOT / "docs", folder)
    moved: dict[str, str] = json.loads((ROOT / "docs/redirects.json").read_text())
    for old, new in moved.items():
        page = folder / old / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        _write_moved(page, "../" * (old.strip("/").count("/") + 1) + new)


def _named_navigation(page: str) -> str:
    """Name each part of the navigation by its title, because the theme names it by a label that may have no text.

    The path above a page is a navigation, too, with the name of the whole one.
    """
    page = page.replace('class="md-path" aria-label="Navigation"', 'class="md-path" aria-label="Path"')
    titled = re.sub(r'class="md-nav__title" for="(__nav_[\d_]+)"', r'\g<0> id="\1_title"', page)
    return re.sub(r'aria-labelledby="(__nav_[\d_]+)_label"', r'aria-labelledby="\1_title"', titled)


def _write_moved(page: Path, to: str) -> None:
    page.write_text(_MOVED.format(to=to))


def _replace(target: Path, built: Path, *, kept: dict[str, Path], copy: bool = False) -> None:
    """Put ``built`` where ``target`` is; the folders in ``kept`` stay in it."""
    aside = ROOT / "build/kept"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for name, folder in kept.items():
        folder.rename(aside / name)
    shutil.rmtree(target, ignore_errors=True)
    if copy:
        shutil.copytree(built, target)
    else:
        built.rename(target)
    for name in kept:
        (aside / name).rename(target / name)


def _versions() -> list[str]:
    """Return what of ``site/`` belongs to versions."""
    if not (SITE / "versions.json").exists():
        return []
    listed = [one["version"] for one in json.loads((SITE / "versions.json").read_text())]
    return [*(name for name in [*listed, LATEST] if (SITE / name).exists()), "versions.json"]


def _list_versions(latest: str) -> None:
    listed = SITE / "versions.json"
    older = [one["version"] for one in json.loads(listed.read_text())] if listed.exists() else []
    versions = sorted({latest, *older}, key=lambda version: [int(part) for part in version.split(".")], reverse=True)
    entries = [{"version": one, "title": one, "aliases": [LATEST] if one == latest else []} for one in versions]
    listed.write_text(json.dumps(entries, indent=1) + "\n")
