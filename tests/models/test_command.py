"""``python -m models`` as a person calls it: what it prints, and what it says of what it can't do."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import models.runner
from fenceline_spark.java import Java, NoJavaError
from models.__main__ import main
from models.bounds import MODELS
from models.runner import sentence
from tests.servers.install import CannotInstall

Capture = pytest.CaptureFixture[str]


def test_a_model_that_is_not_there_is_one_line_with_those_that_are(capsys: Capture) -> None:
    assert main(["Apend"]) == 2
    assert capsys.readouterr().err == f"there is no such model; model=Apend models={', '.join(MODELS)}\n"


def test_a_guard_that_is_not_there_is_one_line_with_those_that_are(capsys: Capture) -> None:
    assert main(["Append", "--without", "judge"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("there is no such guard; guard=judge guards=Append: create if absent, judge again, ")
    assert said.count("\n") == 1


def test_a_missing_java_is_one_line(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(environ: object, *, oldest: int) -> None:
        raise NoJavaError(f"no Java {oldest}")

    monkeypatch.setattr(models.runner, "find_java", none)
    assert main([]) == 2
    assert capsys.readouterr().err == "the models need Java 11 or newer: install one, or set JAVA_HOME\n"


def test_a_checker_that_cannot_be_fetched_is_one_line(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise CannotInstall("mvn is not installed")

    monkeypatch.setattr(models.runner, "find_java", lambda environ, *, oldest: Java(Path("java"), oldest, "PATH"))
    monkeypatch.setattr(models.runner, "tlc", none)
    assert main([]) == 2
    assert capsys.readouterr().err == "the checker of the models can't be had: mvn is not installed\n"


def test_a_tuple_of_words_and_values_is_a_sentence() -> None:
    assert sentence('<<p1, "creates the segment at", 2, "with", b1, ", and stops">>') == (
        "p1 creates the segment at 2 with b1, and stops"
    )


@pytest.fixture
def copied(checker: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a copy of the models that a test may spoil."""
    shutil.copytree(models.runner.HERE, tmp_path / "models", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(models.runner, "HERE", tmp_path / "models")
    return tmp_path / "models"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  elsif Follows(End(self), state[self]) then", "  elsif Follows(End(self) state[self]) then", "Follow"),
        ("  At(key) == IF key \\in Keys", "  At(key) == IF kez \\in Keys", "kez"),
        ("  head.start := to;", "  head.start = to;", ""),
        ("Kept == {key \\in Bases(log)", "Kept == {key \\in Bases(logs)", "logs"),
        ("I3_Once == \\A batch \\in", "I3_Once == \\A batch in", "Encountered"),
        ("store[Len(base)].by = self", "store[Len(base)].bye = self", "bye"),
    ],
)
def test_a_model_that_does_not_parse_is_reported_with_its_line(
    copied: Path, capsys: Capture, old: str, new: str, said: str
) -> None:
    text = (copied / "Append.tla").read_text()
    assert text.count(old) == 1
    (copied / "Append.tla").write_text(text.replace(old, new))
    line = text[: text.index(old)].count("\n") + 1
    assert main(["Append", "--without", "judge again"]) == 2
    printed = capsys.readouterr().err
    assert "models/Append.tla" in printed
    assert said in printed
    labels = [at for at, own in enumerate(text.splitlines(), 1) if re.match(r"\w+:", own) and at <= line]
    assert any(f"line {at}" in printed for at in (line, line + 1, *labels[-1:])), printed  # of a step: its label's line


@pytest.mark.slow
def test_a_history_is_printed_as_numbered_sentences(copied: Path, capsys: Capture) -> None:
    assert main(["Append", "--without", "checkpoint first"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[2].startswith("  1. another process appends")
    assert printed[3].startswith("  2. a trim moves the log start to ")
    assert printed[5:] == ["I5_LogStart does not hold then:", "  The log start never lies beyond the checkpoint."]


@pytest.mark.slow
def test_the_history_on_the_page_is_what_the_command_prints(copied: Path, capsys: Capture) -> None:
    page = (copied / "README.md").read_text()
    shown = page.partition('$ make models MODEL=Append GUARD="judge while young"\n')[2].partition("```")[0]
    assert main(["Append", "--without", "judge while young"]) == 0
    assert " ".join(capsys.readouterr().out.partition("\n")[2].split()) == " ".join(shown.split())
