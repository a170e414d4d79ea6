"""The blocks of a page, run as a stranger types them: ``python -m tests.docs.blocks docs/start/quickstart.md``.

A page has one empty folder, one shell and one server. Its blocks run in order. The words of a fence say more:

- ``title="NAME"`` writes the block to that file first; ``run=no`` ends there. Only ``sh`` and ``python`` are run.
- ``exits=N``: the block must end so, and not with 0.
- ``aws``, ``spark``: the block needs an emulated AWS, or Spark. A page with such a block is run where they are.
- ``shown``: the block is not run. ``SHOWN_MAX`` in ``test_blocks.py`` counts these.

A ``text`` block after one that ran is its output. ``…`` matches anything, also several lines; digits match any digits.
Two spaces or more match any spaces and tabs, so a page may line up the columns of a list.

Rule: a port that the page names is replaced by one that is free, so that two pages may run at the same time.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
BACKGROUND_S = 20  # for a line that a job in the background prints
DEFAULT_PORT = "8080"
_FENCE = re.compile(r"^(?P<indent> *)```(?P<head>[^`\n]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r'(?:[\w-]+="[^"]*"|\S+)')
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}|(?<=localhost:)\d{4,5}|(?<=--port )\d{4,5}")
# A server that names no port has the default one.
_DEV_WITHOUT_PORT = re.compile(
    r"(fenceline dev\b(?![^\n|;&]*--(?:port|help))[^\n|;&>#]*?)(?=\s*(?:[|;&>#]|$))", re.MULTILINE
)
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        language: The fence's first word, such as ``sh``; empty where there is none.
        line: The line of the page at which the block begins.
        words: The fence's further words, such as ``shown``.
        values: Its ``name="value"`` or ``name=value`` words.
    """

    language: str
    body: str
    line: int
    words: frozenset[str] = frozenset()
    values: dict[str, str] = field(default_factory=dict)

    @property
    def is_output(self) -> bool:
        """True for what the block before it prints."""
        return self.language == "text"

    @property
    def is_shown(self) -> bool:
        """True for a block that no test runs, and for a part of a file that has a test of its own."""
        return "shown" in self.words or self.body.lstrip().startswith("--8<--")

    @property
    def runs(self) -> bool:
        """True for a block that is typed, or written to a file and then run."""
        return self.language in ("sh", "python") and not self.is_shown and self.values.get("run") != "no"


class BlockError(AssertionError):
    """A block did not do what its page says; the message names file and line."""


def blocks_of(text: str) -> list[Block]:
    """Return a page's fenced blocks, also those within tabs and lists, without their indentation."""
    found = []
    for match in _FENCE.finditer(text):
        words = _WORD.findall(match["head"])
        pairs = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        found.append(
            Block(
                language=words[0] if words else "",
                body=textwrap.dedent(match["body"]),
                line=text.count("\n", 0, match.start()) + 1,
                words=frozenset(word for word in words[1:] if "=" not in word),
                values={name: value.strip('"') for name, value in pairs.items()},
            )
        )
    return found


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens now."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in taken]


def output_pattern(expected: str) -> re.Pattern[str]:
    """Return what matches an output that a page shows."""
    lines = [re.escape(line.rstrip()).replace("…", ".*") for line in expected.strip().splitlines()]
    lines = [re.sub(r"\d+", r"\\d+", line) for line in lines]
    lines = [re.sub(r"(\\ ){2,}", lambda _: r"[ \t]+", line) for line in lines]
    return re.compile(r"\n".join(lines), re.DOTALL)


def printed_in(output: Path) -> str:
    """Return an output as a page shows it: without colours, and without spaces at the ends of lines."""
    lines = _COLOURS.sub("", output.read_text()).strip().splitlines()
    return "\n".join(map(str.rstrip, lines))


class Page:
    """One page in its folder, with its shell and its server.

    Args:
        page: The page's file.
        folder: An empty folder.
    """

    def __init__(self, page: Path, folder: Path) -> None:
        self.page = page
        self.blocks = blocks_of(page.read_text())
        self._folder = folder
        runnable = "\n".join(block.body for block in self.blocks)
        named = dict.fromkeys([DEFAULT_PORT, *_PORT.findall(runnable)])
        self._ports = dict(zip(named, map(str, free_ports(len(named))), strict=True))
        self._starts_a_server = "fenceline dev" in runnable
        self._count = 0

    def _replaced(self, text: str) -> str:
        replaced = _PORT.sub(lambda found: self._ports[found[0]], text)
        return _DEV_WITHOUT_PORT.sub(rf"\1 --port {self._ports[DEFAULT_PORT]}", replaced)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FENCELINE", "AWS_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        url = f"http://127.0.0.1:{self._ports[DEFAULT_PORT]}"
        plain = {"TERM": "dumb", "COLUMNS": "120", "PYTHONUNBUFFERED": "1"}
        return {**kept, **plain, "PATH": path, "FENCELINE_URL": url, "PYTHONPATH": str(ROOT / "lib")}

    def __enter__(self) -> Page:
        (self._folder / "examples").symlink_to(ROOT / "examples")
        (self._folder / ".venv").mkdir()
        (self._folder / ".venv/bin").symlink_to(Path(sys.executable).parent)
        self._shell = subprocess.Popen(
            ["bash", "--norc", "-s"],
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        if not self._starts_a_server:
            self._type(f"fenceline dev --data ./served --port {self._ports[DEFAULT_PORT]} >served.out 2>&1 &\n")
            self._wait_for_port(self._ports[DEFAULT_PORT])
        return self

    def __exit__(self, *raised: object) -> None:
        for ending in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._shell.pid, signal.SIGCONT)
                os.killpg(self._shell.pid, ending)
            except ProcessLookupError:
                break
            time.sleep(0.3)
        self._shell.communicate()

    def _type(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()

    def _wait_for_port(self, port: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise BlockError(f"{self.page}: the server on port {port} did not start") from None
                time.sleep(0.05)

    def _written(self, block: Block) -> str:
        self._count += 1
        name = block.values.get("title", f".block-{self._count}.{'py' if block.language == 'python' else 'sh'}")
        (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_text(self._replaced(block.body))
        return name

    def run(self, block: Block) -> Path:
        """Run a block and return the file with what it printed, and with what its background jobs go on to print.

        Raises:
            BlockError: It ended with another code than its fence says, or not in time.
        """
        name = self._written(block)
        output = self._folder / f".output-{self._count}"
        command = f"python '{name}'" if block.language == "python" else f". './{name}'"
        if block.language == "sh" and "title" in block.values:
            command = f"bash '{name}'"
        # A background job keeps the file open, so its later output belongs to this block.
        self._type(f"{command} >'{output.name}' 2>&1 </dev/null; echo $?\n")
        # The servers that a block starts must be there for the next one.
        code = self._answer(block)
        if block.language == "sh":
            for started in re.findall(r"fenceline dev[^\n]*?--port (\d+)[^\n]*&", self._replaced(block.body)):
                self._wait_for_port(started)
        if code != int(block.values.get("exits", 0)):
            raise BlockError(f"{self.page}:{block.line}: ended with {code}:\n{printed_in(output)}")
        return output

    def _answer(self, block: Block) -> int:
        assert self._shell.stdout is not None
        timer = _Timer(PATIENCE_S, self._shell.pid)
        with timer:
            line = self._shell.stdout.readline()
        if not line:
            late = f"not ended after {PATIENCE_S} s" if timer.fired else "ended the shell"
            raise BlockError(f"{self.page}:{block.line}: {late}")
        return int(line)

    def run_all(self) -> Iterator[tuple[Block, float]]:
        """Run each block in order, compare each shown output, and yield the block with the seconds it took.

        Raises:
            BlockError: A block failed, or printed something else than the page shows.
        """
        output: Path | None = None
        for block in self.blocks:
            begun = time.monotonic()
            if block.is_output:
                # After a picture, or a block that is not run, text is only text.
                if output is not None:
                    self._compare(block, output)
                output = None
                continue
            output = None
            if block.runs:
                output = self.run(block)
                yield block, time.monotonic() - begun
            elif "title" in block.values and not block.is_shown:
                self._written(block)

    def _compare(self, shown: Block, output: Path) -> None:
        pattern = output_pattern(self._replaced(shown.body))
        deadline = time.monotonic() + BACKGROUND_S
        while not pattern.fullmatch(printed_in(output)):
            # A background job of the block may not have printed its line yet.
            if time.monotonic() > deadline:
                told = f"the block before it printed:\n{printed_in(output)}\nand not:\n{shown.body}"
                raise BlockError(f"{self.page}:{shown.line}: {told}")
            time.sleep(0.05)


class _Timer:
    """Ends a shell that does not answer in time."""

    def __init__(self, seconds: float, pid: int) -> None:
        self._seconds = seconds
        self._pid = pid
        self.fired = False

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._fire)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def _fire(self, *_: object) -> None:
        self.fired = True
        os.killpg(self._pid, signal.SIGKILL)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main(pages: Sequence[str]) -> int:
    """Run the blocks of pages by hand, and print each with its time."""
    failed = 0
    for name in pages:
        with tempfile.TemporaryDirectory() as folder, Page(Path(name), Path(folder)) as page:
            try:
                for block, took_s in page.run_all():
                    print(f"{name}:{block.line}: {took_s:5.1f} s  {block.body.strip().splitlines()[0][:80]}")
            except BlockError as error:
                failed += 1
                print(error)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
