"""The pages of the command line, made of the commands themselves: one page a command, and an index."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from typer.main import get_command

from fenceline_cli.command_table import COMMANDS
from fenceline_cli.main import app
from fenceline_cli.output import EXIT_CODES
from tools.docs.markdown_text import block, filled, paragraphs, table, with_code

FOLDER = "docs/reference/cli"
SOURCE = "the commands' own help"
_BOUNDS = re.compile(r"(?:(-?[\d.]+)<=)?x(?:(>=|<=)(-?[\d.]+))?")


@dataclass(frozen=True)
class Command:
    """A command, or a group of commands.

    Attributes:
        words: What is typed, without ``fenceline``.
    """

    words: tuple[str, ...]
    made_of: Any
    context: Any

    @property
    def page(self) -> str:
        return f"{'-'.join(self.words)}.md"

    @property
    def line(self) -> str:
        """What the command does, in one line."""
        if len(self.words) == 1:
            return COMMANDS[self.words[0]][1]
        return " ".join(str(self.made_of.help).split("\n\n")[0].split())

    @property
    def commands(self) -> list[Command]:
        return list(_below(self.made_of, self.words, self.context))

    @property
    def parameters(self) -> list[Any]:
        return [one for one in self.made_of.params if not getattr(one, "hidden", False)]

    @property
    def options(self) -> list[Any]:
        return [one for one in self.parameters if one.param_type_name == "option"]


def _below(group: Any, words: tuple[str, ...], parent: Any) -> Iterator[Command]:
    for name in group.list_commands(parent) if hasattr(group, "commands") else ():
        found = group.commands[name]
        yield Command((*words, name), found, found.context_class(found, info_name=name, parent=parent))


@cache
def commands() -> list[Command]:
    """Return every command and group, in the order of ``fenceline --help``, each group before what is in it."""
    return [one for first in whole().commands for one in (first, *first.commands)]


@cache
def whole() -> Command:
    """Return the command ``fenceline`` itself."""
    root = get_command(app)
    return Command((), root, root.context_class(root, info_name="fenceline"))


def pages() -> dict[str, str]:
    found = commands()
    made = {f"{FOLDER}/{one.page}": _page(one) for one in found}
    return {f"{FOLDER}/index.md": _index(found), **made}


def nav() -> str:
    """Return the lines of the navigation, for ``mkdocs.yml``."""
    lines = []
    for one in commands():
        if len(one.words) == 2:
            lines.append(f"              - {one.words[1]}: reference/cli/{one.page}")
        elif one.commands:
            lines += [f"          - {one.words[0]}:", f"              - reference/cli/{one.page}"]
        else:
            lines.append(f"          - {one.words[0]}: reference/cli/{one.page}")
    return "".join(line + "\n" for line in lines)


def _index(found: list[Command]) -> str:
    rows = [[f"[`fenceline {' '.join(one.words)}`]({one.page})", with_code(one.line)] for one in found]
    codes = re.findall(r"^  (\d+)\s+(.+)$", EXIT_CODES, re.MULTILINE)
    last = EXIT_CODES.rpartition("\n\n")[2]
    return (
        "# Command line\n\n"
        + filled(
            "This page lists every command of `fenceline`, the options that are given before a command, and the exit "
            "codes. Each command has a page with its options and examples; `fenceline COMMAND --help` prints the same."
        )
        + "\n\n"
        + block("fenceline dev --data ./data\nfenceline topic create orders --partitions 8", "sh")
        + "\n## Commands\n\n"
        + table(("command", "what it does"), rows)
        + "\n## Options before the command\n\n"
        + "".join(_option(one, whole().context) for one in whole().options)
        + "## Exit codes\n\n"
        + filled(
            "An exit code says what to do next. It follows the `next_step` of the [error](../errors.md), which the "
            "command prints with its code on one line of stderr, or with `--json` as a problem document."
        )
        + "\n\n"
        + table(("code", "meaning"), [[code, with_code(text)] for code, text in codes])
        + "\n"
        + paragraphs(last)
        + "\n"
    )


def _page(one: Command) -> str:
    # The page of a group is not searched: it would be found before the commands, as "producers" before "produce".
    parts = ["---\nsearch:\n  exclude: true\n---\n\n"] if one.commands else []
    parts.append(f"# fenceline {' '.join(one.words)}\n\n")
    first, _, rest = str(one.made_of.help).strip().partition("\n\n")
    parts.append(paragraphs(first) + "\n\n")
    usage = [_shown(piece) for piece in one.made_of.collect_usage_pieces(one.context)]
    parts.append(block(" ".join(["fenceline", *one.words, *usage]), "text"))
    if rest:
        parts.append("\n" + paragraphs(rest) + "\n")
    if one.commands:
        rows = [[f"[`{' '.join(sub.words)}`]({sub.page})", with_code(sub.line)] for sub in one.commands]
        parts.append("\n## Commands\n\n" + table(("command", "what it does"), rows))
    examples, others = _examples(one.made_of.epilog or "")
    if examples:
        parts.append("\n## Examples\n\n" + block("\n\n".join(examples), "sh"))
    parts += ["\n" + text for text in others]
    arguments = [p for p in one.parameters if p.param_type_name == "argument"]
    if arguments:
        parts.append("\n## Arguments\n\n" + "".join(_argument(p, one.context) for p in arguments))
    if one.options:
        parts.append("\n## Options\n\n" + "".join(_option(p, one.context) for p in one.options).rstrip() + "\n")
    if not one.commands:
        parts.append("\n" + _exit_codes(one))
    return "".join(parts)


def _exit_codes(one: Command) -> str:
    own = {
        ("lock",): "The exit code is that of the command that `lock` runs, or 75 if the lock was not granted in time, "
        "or was lost. For an error of `lock` itself, see the [exit codes](index.md#exit-codes) of all commands.",
        ("txn", "run"): "The exit code is that of the command that `txn run` runs where that is not 0. For an error of "
        "`txn run` itself, see the [exit codes](index.md#exit-codes) of all commands.",
    }
    usual = (
        "The command ends with 0 when it is done. The [exit codes](index.md#exit-codes) of all commands say what any "
        "other code means."
    )
    return "## Exit codes\n\n" + filled(own.get(one.words, usual)) + "\n"


def _shown(piece: str) -> str:
    return piece.strip("{}") if piece.startswith("{") else piece


def _examples(epilog: str) -> tuple[list[str], list[str]]:
    """Return the lines to type, and the other parts of the end of a help."""
    examples, others = [], []
    for part in filter(None, (each.strip("\n") for each in epilog.split("\n\n"))):
        is_verbatim = part.startswith("\b")
        text = part.removeprefix("\b").strip("\n")
        if text.startswith("Example: "):
            typed = text.removeprefix("Example: ")
            lines = typed.splitlines() if is_verbatim else [" ".join(typed.split("\n"))]
            examples.append(_with_comment([lines[0], *(f"    {line.strip()}" for line in lines[1:])]))
        elif is_verbatim:
            title, _, rest = text.partition("\n")
            more = (
                "[Topic settings](../topic-settings.md) has each with what follows from it.\n\n"
                if "ettings" in title
                else ""
            )
            others.append(f"## {with_code(title.partition(',')[0])}\n\n{more}{block(textwrap.dedent(rest), 'text')}")
        else:
            others.append(paragraphs(text) + "\n")
    return examples, others


def _with_comment(lines: list[str]) -> str:
    """Return an example with its remark, which the help has in parentheses behind it, as a comment before it."""
    typed, found, remark = lines[-1].partition("  (")
    if not found and lines[-1].strip().startswith("("):
        typed, found, remark = "", "(", lines[-1].strip()[1:]
    lines = [*lines[:-1], typed.rstrip()] if typed.strip() else lines[:-1] if found else lines
    comment = [f"# {remark.strip().removesuffix(')')}"] if found else []
    return "\n".join([*comment, *lines])


def _record(parameter: Any, context: Any) -> tuple[str, str, list[str]]:
    """Return a parameter's names, its help, and what the help has in brackets behind it."""
    names, text = parameter.get_help_record(context)
    text, found, extra = f"  {text}".rpartition("  [")
    if not found:
        return names, extra.strip(), []
    return names, text.strip(), extra.removesuffix("]").split("; ")


def _argument(parameter: Any, context: Any) -> str:
    names, text, extra = _record(parameter, context)
    name = names.strip("[]")
    end = "Required." if "required" in extra else "May be left out."
    return filled(f"- `{name}`: {with_code(text)} {end}", "  ") + "\n"


def _option(parameter: Any, context: Any) -> str:
    names, text, extra = _record(parameter, context)
    choices = re.search(r" <([^<>]+\|[^<>]+)>$", names)
    names = re.sub(r" <[^<>]+>$", "", names)
    said = [with_code(text)]
    if choices:
        *most, last = (f"`{one}`" for one in choices[1].split("|"))
        said.append(f"It takes {', '.join(most)} or {last}.")
    for one in extra:
        said.append(_extra(one))
    anchor = next(one for one in parameter.opts if one.startswith("--")).lstrip("-")
    names = names.replace(", ", "`, `").replace(" / ", "` / `")
    return f"### `{names}` {{ #{anchor} }}\n\n{filled(' '.join(filter(None, said)))}\n\n"


def _extra(one: str) -> str:
    kind, found, value = one.partition(": ")
    if found and kind == "env var":
        return f"Environment: `{value}`."
    if found and kind == "default":
        return f"Default: {value.strip('()')}." if value.startswith("(") else f"Default: `{value}`."
    if one == "required":
        return "Required."
    bounds = _BOUNDS.fullmatch(one)
    if bounds is None:
        raise ValueError(f"the help has a remark that no page knows: {one}")
    low, sign, number = bounds.groups()
    if low is not None:
        return f"From {low} to {number}."
    return f"At least {number}." if sign == ">=" else f"At most {number}."


def option_names() -> Mapping[str, list[str]]:
    """Return the names of every option by the page that has it."""
    return {f"{FOLDER}/{c.page}": [n for p in c.options for n in (*p.opts, *p.secondary_opts)] for c in commands()}
