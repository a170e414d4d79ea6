"""The rules of the console's files: colours, requests, elements, sizes, and modules of others. No browser is needed."""

import gzip
import re
from pathlib import Path

import pytest

import fenceline_console
from tests.console.vendor import KNOWN, LICENSES, VENDOR, known, sha256_of

PAGE = Path(fenceline_console.__file__).parent / "page"
OURS = sorted(path for path in PAGE.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg"))
MODULES = [path for path in OURS if path.suffix == ".js"]
PURE = ("avro", "filter", "format", "held", "json", "links", "money", "move", "scan", "units")
PAGE_PACKED_MAX = 70 * 1024  # what a browser fetches for one page, the frame included
ALL_PACKED_MAX = 160 * 1024  # of all pages together

VALUE = (
    r"#(?:[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})\b(?!-)|\b(?:rgba?|hsla?|hwb|lab|lch|oklab|oklch|color|light-dark)\("
)
NAME = r"\b(?:black|white|red|green|blue|grey|gray|orange|yellow|purple|pink|silver|navy|teal)\b"
PROPERTY = r"(?:color|background|border[\w-]*|outline[\w-]*|fill|stroke)[\"']?\s*[:=]\s*[\"'`]?"
COLOURED = rf"{PROPERTY}[^;}}\"'`\n]*?(?:{VALUE}|{NAME})"
REQUEST = r"\bfetch\s*\(|XMLHttpRequest|EventSource|WebSocket|sendBeacon|importScripts|new Worker"
UNSAFE = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\(|srcdoc|javascript:"
ELSEWHERE = r"""["'(]\s*(?:https?:)?//(?!127\.)"""
IMPURE = r"\bdocument\.|\bwindow\.|\bfetch\(|Date\.now\(|Math\.random\(|localStorage"


def name_of(path):
    return path.relative_to(PAGE).as_posix()


def code_of(path):
    """Return a file's text without its comments, which may name what no code may."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    return re.sub(r"(?m)(^|[\s;{}])//.*$", r"\1", text) if path.suffix == ".js" else text


def found_in(paths, pattern):
    found = {name_of(path): re.findall(f"(?:{pattern})", code_of(path), re.IGNORECASE) for path in paths}
    return {name: hits for name, hits in found.items() if hits}


def test_only_the_tokens_name_a_colour():
    others = [path for path in OURS if path.name not in ("tokens.css", "mark.svg")]
    assert found_in([PAGE / "tokens.css"], VALUE)
    assert found_in(others, COLOURED) == {}
    # In a module a "#" may begin a private member or an address, so only a style's text is searched for it alone.
    assert found_in([path for path in others if path.suffix == ".css"], VALUE) == {}


@pytest.mark.parametrize(
    "text", ["a { color: #fff }", "b { border-left: 1px solid red }", 'c = {color: "#0b6558"}', 'd fill="rgb(1, 2, 3)"']
)
def test_a_colour_is_recognised(text):
    assert re.search(COLOURED, text)


def test_only_the_api_asks_anything():
    assert {*found_in(MODULES, REQUEST)} == {"api.js"}


def test_nothing_makes_elements_of_text():
    assert found_in(OURS, UNSAFE) == {}
    assert re.search(UNSAFE, "dangerouslySetInnerHTML", re.IGNORECASE)


def test_the_page_has_no_script_and_no_style_of_its_own_and_names_no_other_host():
    """The content policy would refuse each of them."""
    page = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page)
    assert found_in([path for path in OURS if path.suffix != ".svg"], ELSEWHERE) == {}


@pytest.mark.parametrize("path", [*MODULES, PAGE / "console.css", PAGE / "tokens.css"], ids=name_of)
def test_a_file_is_short_enough_to_read(path):
    lines = path.read_text().splitlines()
    assert path.suffix != ".js" or len(lines) <= 250
    assert [number for number, line in enumerate(lines, 1) if len(line) > 200] == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_each_module_is_checked_for_its_types(path):
    assert path.read_text().startswith("// @ts-check\n")


def test_the_modules_that_a_page_computes_with_know_no_document():
    pure = [PAGE / f"{name}.js" for name in PURE]
    assert found_in(pure, IMPURE) == {}
    assert found_in(pure, rf'from\s+"(?!\./(?:{"|".join(PURE)})\.js")') == {}


def imported_by(name):
    """Return the modules that a module imports at once."""
    named = re.findall(r"""\b(?:from|import)\s*["'](\.[^"']+)["']""", code_of(PAGE / name))
    return [name_of(((PAGE / name).parent / other).resolve()) for other in named]


def loaded_with(name):
    """Return what a browser fetches for a module: it, and all that it needs at once."""
    found, left = set(), [name]
    while left:
        one = left.pop()
        if one not in found and (PAGE / one).exists():
            found.add(one)
            left += imported_by(one)
    return found


@pytest.mark.parametrize("name", [name_of(path) for path in MODULES])
def test_what_a_module_imports_is_there(name):
    assert [other for other in imported_by(name) if not (PAGE / other).is_file()] == []


def test_what_is_sent_is_small(capsys):
    """As packed as a gateway would send it. The table says where the bytes are."""
    packed = {name: len(gzip.compress(file.body, mtime=0)) for name, file in fenceline_console.files().items()}
    frame = {"index.html", "tokens.css", "console.css", "mark.svg", *loaded_with("main.js")}
    pages = re.findall(r"pages/[\w-]+\.js", (PAGE / "main.js").read_text())
    shown = {name: sum(packed[one] for one in {*frame, *loaded_with(name)}) for name in pages}
    with capsys.disabled():
        for what, sizes in (("file", packed), ("page, with the frame", shown)):
            print(f"\n{'packed':>7}  {what}")
            for name, size in sorted(sizes.items(), key=lambda one: -one[1]):
                print(f"{size:7,}  {name}")
        print(f"{sum(packed.values()):7,}  all")
    assert max(shown.values()) <= PAGE_PACKED_MAX
    assert sum(packed.values()) <= ALL_PACKED_MAX


def test_each_file_is_served_with_a_type():
    types = {name: file.headers["content-type"] for name, file in fenceline_console.files().items()}
    assert {name_of(path) for path in OURS} <= {*types}
    assert all(types.values())


# Modules of others


def test_the_modules_of_others_are_those_that_are_named():
    modules = {module["file"]: module for module in known()["modules"]}
    files = {path.name for path in VENDOR.iterdir()} - {KNOWN.name, LICENSES.name}
    assert {name: sha256_of((VENDOR / name).read_bytes()) for name in files} == {
        name: module["sha256"] for name, module in modules.items()
    }


def test_each_package_is_pinned_and_has_its_licence():
    text = LICENSES.read_text()
    for package in known()["packages"]:
        assert package["integrity"].startswith("sha512-")
        assert f"## {package['name']} {package['version']}\n" in text
    assert text.count("Permission is hereby granted") + text.count("Apache License") >= len(known()["packages"])


def test_a_module_of_others_imports_only_its_neighbours():
    neighbours = {f"./{other.name}" for other in VENDOR.glob("*.mjs")}
    for path in VENDOR.glob("*.mjs"):
        text = path.read_text()
        assert {*re.findall(r"""\bfrom\s*["']([^"']+)["']""", text)} <= neighbours
        assert "sourceMappingURL" not in text
