"""The page for contributors names files and folders that exist, and each package of the log."""

from __future__ import annotations

import re

import pytest

from tests import proofs
from tests.support.readme import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FOLDERS = r"(?:lib|functions|infra|models|tests|benchmarks|examples)/"
NAMED = sorted(path for path in set(re.findall(rf"`({FOLDERS}[^`]*)`", TEXT)) if not re.search(r"<|NAME|…", path))
PACKAGES = sorted(path.parent.name for path in (ROOT / "lib" / "fenceline").glob("*/__init__.py"))


@pytest.mark.parametrize("named", NAMED)
def test_each_file_and_folder_that_the_page_names_exists(named: str) -> None:
    assert (ROOT / named).exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_of_the_log_is_named(package: str) -> None:
    assert f"`{package}/`" in TEXT


def test_each_command_of_make_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z-]+)`", TEXT)) <= targets


def test_the_page_lists_the_proofs_that_the_tests_declare() -> None:
    assert proofs.replaced(TEXT) == TEXT, "run .venv/bin/python -m tests.proofs"


def test_each_file_with_tests_of_the_night_says_why_they_are_not_in_ci() -> None:
    assert proofs.marked_files() == set(proofs.AT_NIGHT)
