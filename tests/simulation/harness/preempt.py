"""Preemption between any two statements of the protocol, as threads meet it.

A pause at every store call shows most races, but not those between two threads of one process, in plain memory, because
they hide between statements. Here the modules whose objects threads share are compiled again, with a call before each
statement, and that code takes the place of their functions' own code while a world that preempts is played.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.simulation.harness.world import World

NAMES = (
    "access.session_cache",
    "append.appender",
    "append.combining.combiner",
    "append.combining.own_offers",
    "append.combining.round_item",
    "append.commit",
    "append.contention",
    "append.group",
    "append.queue",
    "log.checkpoint",
    "log.context",
    "log.partition",
    "log.segment_index",
    "log.trim",
    "read.reader",
    "regions.peer_status",
    "regions.link_item",
    "regions.replicator",
    "regions.announce_subscriptions",
    "service.access",
    "service.log",
    "service.partitions",
    "service.produce",
    "service.replication",
    "service.resolver",
    "service.topics",
    "service.transactions",
    "transactions.producer_ids",
)
# Each face of the service is imported here, because its first import calls ``translated``, which may be preempted.
MODULES = [import_module(f"fenceline.{name}") for name in NAMES]

_world: World | None = None


def _hook() -> None:
    world = _world
    if world is not None and world.current is not None and world.current.process is not None:
        world.maybe_preempt()


@contextmanager
def preempting(world: World) -> Iterator[None]:
    """Let this world preempt between statements, if it does so at all."""
    global _world
    if not world.preemption:
        yield
        return
    _world = world
    for function, _, code in FUNCTIONS:
        function.__code__ = code
    try:
        yield
    finally:
        _world = None
        for function, code, _ in FUNCTIONS:
            function.__code__ = code


class _Calls(ast.NodeTransformer):
    """A transformer that puts a call before each statement of every function."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        for inner in ast.walk(node):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(inner, name, None)
                if isinstance(block, list) and not isinstance(inner, ast.ClassDef):
                    setattr(inner, name, [statement for old in block for statement in _called(old)])
        return node


def _called(statement: ast.stmt) -> list[ast.stmt]:
    is_call = isinstance(statement, ast.Expr) and getattr(statement, "is_hook", False)
    is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if is_call or is_docstring or isinstance(statement, ast.Nonlocal | ast.Global):
        return [statement]
    call = ast.Expr(ast.Call(ast.Name("__preempt__", ast.Load()), [], []))
    call.is_hook = True  # type: ignore[attr-defined]
    ast.copy_location(call, statement)
    return [ast.fix_missing_locations(call), statement]


def _instrumented() -> Iterator[tuple[types.FunctionType, types.CodeType, types.CodeType]]:
    """Yield each function with its own code, and with the one that has the calls."""
    for module in MODULES:
        assert module.__file__ is not None
        source = Path(module.__file__).read_text()
        code = compile(_Calls().visit(ast.parse(source)), module.__file__, "exec")
        vars(module)["__preempt__"] = _hook
        new = {found.co_qualname: found for found in _codes(code)}
        for function in _functions(module):
            if function.__code__.co_qualname in new:
                yield function, function.__code__, new[function.__code__.co_qualname]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members: list[Any] = list(vars(value).values()) if isinstance(value, type) else [value]
        for member in members:
            function = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
            if isinstance(function, types.FunctionType):
                yield function


# Before any test can put something of its own in a function's place.
FUNCTIONS = list(_instrumented())
