"""The page of errors: a heading for each code, with facts from the code and a short text written by hand.

The texts are ``tools/docs/errors/CODE.md``, in lower case. Each has four parts, in this order: *What happened*,
*Is anything written*, *What to do*, with a line for Python, the command line and HTTP, and *Why it exists*, with
a link. Links lead from the page, and not from the text's own folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fenceline import errors
from fenceline.errors import FencelineError, NextStep
from fenceline_cli.output import exit_code_of
from fenceline_http import schemas
from tools.docs.markdown_text import filled, table

PAGE = "docs/reference/errors.md"
SOURCE = "lib/fenceline/errors.py and tools/docs/errors/"
TEXTS = Path(__file__).with_name("errors")
PARTS = ("What happened", "Is anything written", "What to do", "Why it exists")
WAYS = ("Python", "Command line", "HTTP")

_STEPS: Mapping[NextStep, str] = {
    "fix": "this request wrote no record, and the same request fails again: change something first",
    "retry": "this request wrote no record: send it again",
    "check": "it may have been written, or may still be: repeat it only so that a second copy is refused",
    "stop": "stored data breaks an invariant: stop writing there, and run `fenceline verify`",
}
_SHOWN_MAX = 10  # codes of one step


def pages() -> dict[str, str]:
    return {PAGE: "".join([_start(), *(_code(leaf) for leaf in errors.TABLE.values())])}


def text_of(code: str) -> str:
    """Return the text of a code; "" where it is missing."""
    path = TEXTS / f"{code.lower()}.md"
    return path.read_text().strip() if path.is_file() else ""


def _start() -> str:
    by_step = [
        filled(f"- `{step}`: {means}. On the command line it is exit code {_exit_code(step)}. {_codes(step)}", "  ")
        for step, means in _STEPS.items()
    ]
    return "".join(
        [
            "# Errors\n\n",
            filled(
                "Search this page for the code that you met: it says what happened, whether anything was written, and "
                "what to do. Every error has a `next_step`, which is a promise about the data:"
            ),
            "\n\n",
            "\n".join(by_step),
            "\n\n",
            filled(
                "In Python an error is an exception of `fenceline.errors`, with `code`, `next_step`, `detail` and its "
                "further fields as attributes. Two more are the client's own, for a "
                "[transaction](python/transactions.md): `TransactionAbortedError` and `CommitOutcomeUnknownError`. "
                "Over HTTP it is a problem document whose `help` leads to the code's "
                "part of `/docs/errors` on the same server. On the command line it is one line on stderr, and its exit "
                "code follows the next step; `--json` prints the problem document. The form is in the "
                "[contract](http/errors.md)."
            ),
            "\n",
        ]
    )


def _leaves() -> list[type[FencelineError]]:
    return list(errors.TABLE.values())


def _codes(step: NextStep) -> str:
    found = [leaf.code for leaf in _leaves() if leaf.next_step == step]
    if len(found) > _SHOWN_MAX:
        return "Every code that is not named below has it."
    return "Codes: " + ", ".join(f"[{code}](#{code.lower()})" for code in found) + "."


def _exit_code(step: NextStep) -> int:
    return exit_code_of(next(leaf for leaf in _leaves() if leaf.next_step == step)(""))


def _code(leaf: type[FencelineError]) -> str:
    required, optional = schemas.members_of(leaf.code)
    head = ("status", "next step", "exit code", "in Python")
    facts = (str(leaf.status), f"`{leaf.next_step}`", str(exit_code_of(leaf(""))), f"`errors.{leaf.__name__}`")
    fields = [f"`{name}`" for name in required] + [f"`{name}` (not always)" for name in optional]
    further = f"\n{filled('Further fields: ' + ', '.join(fields) + '.')}\n" if fields else ""
    return f"\n## {leaf.code}\n\n{table(head, [facts])}{further}\n{text_of(leaf.code)}\n"
