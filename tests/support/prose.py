"""The rule for prose that a program can judge: a sentence names its actor and has none of the banned words.

Not here: whether a sentence is plain, and whether it has one idea. A reader judges that.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence

SPACES_MIN = 3  # of a string that counts as prose

HIDDEN = re.compile(
    r"\b(whoever|whomever|whosoever|somebody|nobody|anybody|everybody|no one|someone|everyone|anyone)\b"
    r"|(?<![\w-])(leans? on|leaned on|stands? (?:in|there|here|for|at|on|under|before|behind)|stood"
    r"|no more(?! than)|(?:is|are|was|were) told|tells|to tell)\b"
    r"|(?:^|[.:;] )(?:Who|Whose|Of whom|Whom)\b(?!.*\?)",
    re.IGNORECASE,
)
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx)\.")
_END = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=[\"'(*_`A-Z0-9])|\s*\n\s*\n\s*")
_LABEL = re.compile(r"^\s*\w+( \([^)]*\))?: |^\s*(Args|Raises|Returns|Yields):\s*$", re.MULTILINE)
# A literal block, after two colons: lines that are indented more than the paragraph before it.
_LITERAL = re.compile(r"(?<=[a-z])::\n\n(?P<indent> +)\S.*(?:\n(?:(?P=indent).*)?)*(?:\n|$)")
_ITEM = re.compile(r"^\s*- ", re.MULTILINE)
_BLOCK = re.compile(r"^([-*]|\d+\.|#+|>)\s+")
_PROGRAM = re.compile(r"^(import|from|def) |^\s*\w+(, \w+)* = |\{ \w+: |</?\w+>", re.MULTILINE)  # a string that is code
_GUARD = re.compile(r"""\(?\bmodel:\s+\w+,\s+"[^"]+"\)?""")  # a model's guard is cited: that is no part of a sentence
_DIRECTIVE = re.compile(r"#\s*(noqa|type:|ruff|pragma)")

Finding = tuple[int, str]  # the line, and what is wrong there


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph, code as one word each."""
    text = _ABBREVIATION.sub("abbr", _GUARD.sub("", text))
    text = re.sub(r"``[^`]+``|`[^`]+`", "`code`", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for part in _END.split(text):
        if part.strip():
            yield " ".join(part.split())


def findings(text: str) -> Iterator[str]:
    """Yield what is wrong with a paragraph's sentences."""
    for sentence in sentences(text):
        if found := HIDDEN.search(sentence):
            yield f"'{found.group().strip()}': {sentence}"


def of_markdown(text: str) -> Iterator[Finding]:
    """Yield what is wrong with a page: paragraphs, items of lists, and cells of tables."""
    paragraph: list[str] = []
    start, is_code = 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        is_fence, is_row = stripped.startswith("```"), stripped.startswith("|")
        if is_fence or is_row or not stripped or _BLOCK.match(stripped):
            yield from ((start, found) for found in findings(" ".join(paragraph)))
            paragraph = []
        if is_fence:
            is_code = not is_code
        elif is_row and not is_code:
            for cell in re.split(r"(?<!\\)\|", stripped):
                yield from ((number, found) for found in findings(cell))
        elif stripped and not is_code:
            start = start if paragraph else number
            paragraph.append(_BLOCK.sub("", stripped, count=1) if not paragraph else stripped)


def of_python(text: str) -> Iterator[Finding]:
    """Yield what is wrong with a module's docstrings, comments, and strings that are prose."""
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = list(_docstrings(nodes))
    for node in docstrings:
        text_alone = _LITERAL.sub(":\n\n", str(node.value))
        paragraphs = _ITEM.sub("\n\n", _LABEL.sub("\n\n", text_alone))
        yield from ((node.lineno, found) for found in findings(paragraphs))
    for line, said in _strings(nodes, {id(node) for node in docstrings}):
        if said.count(" ") >= SPACES_MIN and not _PROGRAM.search(said):
            yield from ((line, found) for found in findings(said))
    for line, comment in _comments(text):
        yield from ((line, found) for found in findings(comment))


def _strings(nodes: Sequence[ast.AST], known: set[int]) -> Iterator[Finding]:
    """Yield strings but those in ``known``; what is formatted into one counts as a word."""
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            known |= {id(part) for part in node.values}
            parts = (str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in known:
            yield node.lineno, node.value


def _docstrings(nodes: Sequence[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str()) as found), *_]:
                    yield found


def _comments(text: str) -> Iterator[Finding]:
    """Yield comments, those of neighbouring lines as one, with the line where each begins."""
    comment: list[str] = []
    begun = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string):
            continue
        line = token.start[0]
        is_alone = not token.line[: token.start[1]].strip()
        said = re.sub(r"\s*#\s*noqa.*", "", token.string.lstrip("# "))
        if is_alone and comment and line == last + 1:
            comment.append(said)
        else:
            yield begun, " ".join(comment)
            comment, begun = [said], line
        last = line if is_alone else 0
    yield begun, " ".join(comment)
