"""Runs TLC, the checker of TLA+, on a copy of a model, and reads what it found.

A model's file has the algorithm and the invariants alone. Here a copy of it is translated in a folder of its own, so
no generated text is ever committed. The model's variable `story` has the sentences of a history.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fenceline_spark.java import NoJavaError
from fenceline_spark.java import find as find_java
from models.bounds import Bounds, Deep, Fault
from tests.servers.install import CannotInstall, tlc

HERE = Path(__file__).parent
JAVA_MIN = 11
BEGIN = "\\* BEGIN TRANSLATION"
_DONE = re.compile(
    r"^Model checking completed. No error has been found."
    r"|^Progress: [\d,]+ states checked\.\s+^Finished in ",  # the end of random histories
    re.M,
)
_ERROR = re.compile(r"^Error: ", re.M)
_NOISE = re.compile(
    r"TLC2 Version|Running |Parsing file|Semantic processing|Starting\.\.\.|Computing initial|Finished "
)
_PROGRESS = re.compile(r"Progress(?:\(\d+\) at [^:]+:\d+:\d+)?: (.+)")
_PLACE = re.compile(r"line (\d+)(, col(?:umn)? \d+)?(?: to line \d+, col \d+)?")
_VIOLATED = re.compile(r"^Error: Invariant (\w+) is violated", re.M)
_STATE = re.compile(r"^State \d+: <.*>\n((?:.+\n)*)", re.M)
_VARIABLE = re.compile(r"^/\\ (\w+) = (.*(?:\n(?!/\\ ).*)*)", re.M)
_NESTED = r"\[[^\[\]]*\]|\{(?:\[[^\[\]]*\]|[^{}])*\}|<<(?:[^<>]|\|->)*>>"  # a record, a set and a tuple, as they are
_WORD = re.compile(rf'"([^"]*)"|((?:{_NESTED}|[^",\[{{<\s])+)')


class ModelError(Exception):
    """A model could not be checked. The message says why; nothing was found out."""


class CheckerMissing(ModelError):
    """There is no Java, or the checker can't be had. The message is one line."""


@dataclass(frozen=True)
class Found:
    """The finding of a run of the checker."""

    violated: str  # the name of an invariant; "" if all of them hold
    wrong: str  # if an answer was not true: which, in the words of the model
    history: tuple[Mapping[str, str], ...]  # the way to the broken invariant: the variables, state by state
    states: int  # distinct ones, or those of all random histories
    seconds: float
    output: str

    @property
    def falls(self) -> str:
        """The invariant that does not hold, named as in bounds.py."""
        return self.wrong if self.violated.endswith("AnswersAreTrue") else self.violated

    @property
    def steps(self) -> int:
        return max(0, len(self.history) - 1)

    def story(self) -> Iterator[str]:
        """Yield a sentence for each step."""
        for state in self.history[1:]:
            yield sentence(state["story"])


def check(
    model: str,
    *,
    off: str = "",
    bounds: Bounds | None = None,
    fault: Fault | None = None,
    deep: Deep | None = None,
) -> Found:
    """Check one model.

    Args:
        off: The guard to switch off.
        bounds: Constants that differ from those of the model's `.cfg`.
        fault: A rule to change in the copy.
        deep: A run that takes minutes, with bounds of its own.

    Raises:
        ModelError: There is no Java or no checker, or the model does not parse, or can't be evaluated.
    """
    source = (HERE / f"{model}.tla").read_text()
    if fault is not None:
        if source.count(fault.old) != 1:
            raise ModelError(f"a seeded fault must change one place of the model; model={model} fault={fault.name}")
        source = source.replace(fault.old, fault.new)
    wanted = {**(bounds or {}), **(deep.bounds if deep else {}), "Off": f'{{"{off}"}}' if off else "{}"}
    files = {f"{model}.tla": source, f"{model}.cfg": configured(model, wanted)}
    options: list[str] = []
    if deep is not None and deep.histories:
        options = ["-simulate", f"num={deep.histories}", "-depth", str(deep.depth), "-seed", "1"]
    is_whole = not off and fault is None
    return run(model, files, translate=model, options=options, is_long=deep is not None, is_whole=is_whole)


def configured(name: str, bounds: Bounds) -> str:
    """Return the text of a `.cfg` with other constants.

    Raises:
        ModelError: A constant is not there.
    """
    text = (HERE / f"{name}.cfg").read_text()
    for constant, value in bounds.items():
        text, replaced = re.subn(rf"^  {constant} = .*$", f"  {constant} = {value}", text, flags=re.M)
        if not replaced:
            raise ModelError(f"the configuration has no such constant; model={name} constant={constant}")
    return text


def run(
    module: str,
    files: Mapping[str, str],
    *,
    translate: str,
    options: Sequence[str] = (),
    is_long: bool = False,
    is_whole: bool = False,
) -> Found:
    """Translate one of ``files``, the one named ``translate``, and let TLC check ``module``.

    Args:
        is_long: It takes minutes, so it uses all cores, and shows its progress.
        is_whole: It looks at each state, which takes long enough for Java to compile well.

    Raises:
        ModelError: There is no Java or no checker, or a file does not parse, or can't be evaluated.
    """
    java = _java()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fenceline-model.") as scratch:
        source = files[f"{translate}.tla"]
        translated = _translated(translate, source, tuple(java))
        for name, text in {**files, f"{translate}.tla": translated}.items():
            Path(scratch, name).write_text(text)
        # TLC unpacks its own modules into the folder for temporary files, where two runs would meet.
        start = [*java, f"-Djava.io.tmpdir={scratch}"]
        start[1:1] = ["-XX:+UseParallelGC"] if is_long else ["-XX:+UseSerialGC"]
        # Most runs take a second or two, so they are compiled fast, not well. With one worker the history is the same
        # each time.
        start[1:1] = [] if is_long or is_whole else ["-XX:TieredStopAtLevel=1"]
        workers = "auto" if is_long else "1"
        fixed = ["-workers", workers, "-fp", "0", "-cleanup", "-nowarning", "-metadir", f"{scratch}/states"]
        output = _call([*start, "tlc2.TLC", *fixed, *options, module], scratch, tells_progress=is_long)
    violated = _VIOLATED.search(output)
    if violated is None and (_ERROR.search(output) or not _DONE.search(output)):
        raise ModelError(_in_ours(output, translate, source, translated))
    history = tuple(_variables(state) for state in _STATE.findall(output)) if violated else ()
    if violated and not history:  # the initial state breaks it, and has no number
        history = (_variables(output),)
    states = re.findall(r"(\d+) distinct states found|Progress: ([\d,]+) states checked", output)
    return Found(
        violated=violated[1] if violated else "",
        wrong=sentence(history[-1].get("wrong", "")) if history else "",
        history=history,
        states=int("".join(states[-1]).replace(",", "")) if states else 0,
        seconds=time.monotonic() - began,
        output=output,
    )


def sentence(value: str) -> str:
    """Return the words of a value of TLA+, which is a text or a tuple of texts and values, as a sentence."""
    words = " ".join(
        text or other.strip() for text, other in _WORD.findall(value.removeprefix("<<").removesuffix(">>"))
    )
    return re.sub(r" ([,:;])", r"\1", " ".join(words.split()))


def comment_of(model: str, invariant: str) -> str:
    """Return the comment above an invariant, which is a sentence."""
    found = re.search(rf"((?:^\\\*.*\n)+){invariant} ==", (HERE / f"{model}.tla").read_text(), re.M)
    return " ".join(re.sub(r"^\\\* ?", "", found[1], flags=re.M).split()) if found else ""


def _in_ours(output: str, model: str, source: str, translated: str) -> str:
    """Return TLC's error for a model that it can't check, with line numbers of our file, not of the translated copy."""
    begin = source[: source.index(BEGIN)].count("\n") + 1
    added = translated.count("\n") - source.count("\n")
    lines = translated.splitlines()

    def ours(found: re.Match[str]) -> str:
        line = int(found[1])
        if line <= begin:
            return found[0]
        if line > begin + added + 1:
            return f"line {line - added}{found[2] or ''}"
        text = lines[line - 1].strip()
        if same := [at for at, own in enumerate(source.splitlines(), 1) if own.strip() == text]:
            return f"line {same[0]}{found[2] or ''}"  # in the block `define`, which is translated as it is
        label = re.findall(r"^(\w+)(?:\(self\))? ==", "\n".join(lines[:line]), re.M)[-1]
        at = re.search(rf"^ *{label}:", source, re.M)
        return f"line {source[: at.start()].count(chr(10)) + 1 if at else begin}, in the step {label}"

    told = output.partition("Error: The behavior up to this point")[0]
    said = [line for line in told.splitlines() if line.strip() and not _NOISE.match(line)]
    return f"models/{model}.tla can't be checked:\n  " + _PLACE.sub(ours, "\n  ".join(said[:15]))


def _java() -> list[str]:
    try:
        java = find_java(os.environ, oldest=JAVA_MIN)
    except NoJavaError:
        raise CheckerMissing(f"the models need Java {JAVA_MIN} or newer: install one, or set JAVA_HOME") from None
    try:
        jar = tlc()
    except CannotInstall as error:
        raise CheckerMissing(f"the checker of the models can't be had: {error}") from None
    return [str(java.command), "-Xmx4g", "-cp", str(jar)]


@lru_cache(maxsize=64)  # a model is translated once for all of its guards: a quarter of a second each
def _translated(model: str, source: str, java: tuple[str, ...]) -> str:
    with tempfile.TemporaryDirectory(prefix="fenceline-model.") as scratch:
        copy = Path(scratch, f"{model}.tla")
        copy.write_text(source)
        said = _call([*java, "-XX:TieredStopAtLevel=1", "pcal.trans", "-nocfg", copy.name], scratch)
        if "Translation completed" not in said:
            raise ModelError(f"models/{copy.name} does not parse: {_told(said)}")
        return copy.read_text()


def _call(command: list[str], folder: str, *, tells_progress: bool = False) -> str:
    """Return the output of a command. TLC's progress, once a minute in a long run, is passed on at once."""
    lines = []
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            if tells_progress and (found := _PROGRESS.match(line)):
                print(f"  {found[1]}", file=sys.stderr, flush=True)
    return "".join(lines)


def _told(output: str) -> str:
    return " ".join(line.strip() for line in output.splitlines() if line.strip() and "Version" not in line)


def _variables(text: str) -> Mapping[str, str]:
    return {name: " ".join(value.split()) for name, value in _VARIABLE.findall(text)}
