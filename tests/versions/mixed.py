"""Processes of two versions in one simulated world: each process starts as one of them, and as the other after a death.

Rule: the older protocol runs under another name, ``fenceline_old``. Both have the same ports, errors, limits, runtime
and values of ``model``, because the simulation gives them to processes and catches them. All checks are this version's.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fenceline import ports
from fenceline.service.log import Log
from tests.simulation.harness import preempt, real
from tests.simulation.harness.scenario import Failed
from tests.simulation.regions import scenario as regions
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.transactions import recovered
from tests.support import sweeping

OLD = "fenceline_old"
SHARED = ("errors", "limits", "model", "ports", "regions.peer", "runtime")
CALLED = ((sweeping, "sweep", "sweeper.sweep"), (recovered, "verify_partition", "recovery.verify"))
_IMPORT = re.compile(r"(?m)^(\s*(?:from|import)\s+)fenceline\b")


def load(lib: Path, directory: Path) -> None:
    """Let ``fenceline_old`` be what ``lib`` has, but for what both versions share; the files are in ``directory``."""
    copied = shutil.copytree(lib / "fenceline", directory / OLD)
    for file in copied.rglob("*.py"):
        file.write_text(_IMPORT.sub(rf"\1{OLD}", file.read_text()))
    sys.path.insert(0, str(directory))
    files = {".".join(file.relative_to(copied).with_suffix("").parts): file for file in copied.rglob("[!_]*.py")}
    beginnings = tuple(f"{name}." for name in SHARED)
    shared = [name for name in files if f"{name}.".startswith(beginnings) and find_spec(f"fenceline.{name}")]
    for name in shared:
        sys.modules[f"{OLD}.{name}"] = import_module(f"fenceline.{name}")
    while shared:  # one may import what only the older version has in another one
        left = [name for name in shared if not _add_missing(f"{OLD}.{name}", files[name])]
        if len(left) == len(shared):
            raise ImportError(f"these modules of the older version do not load: {left}")
        shared = left
    preempted = [import_module(f"{OLD}.{name}") for name in preempt.NAMES if name in files]
    with patch.object(preempt, "MODULES", preempted):
        preempt.FUNCTIONS += preempt._instrumented()


def _add_missing(name: str, file: Path) -> bool:
    """Give a shared module, and its classes, what only the older version has in them; return whether that is done."""
    shared, spec = sys.modules[name], spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    own = module_from_spec(spec)
    try:
        spec.loader.exec_module(own)
    except ImportError:
        return False
    for known, value in vars(own).items():
        _add(shared, known, value)
        if isinstance(value, type) and value.__module__ == name:
            for member, method in vars(value).items():
                _add(getattr(shared, known), member, method)
    return True


def _add(to: Any, name: str, value: Any) -> None:
    if not hasattr(to, name):
        setattr(to, name, value)


def is_old(what: Any) -> bool:
    return type(what).__module__.startswith(f"{OLD}.")


def _old_log(*stores: Any, **options: Any) -> Any:
    """Return a process of the older version, which takes this version's requests."""
    made: Any = import_module(f"{OLD}.service.log").Log(*stores, **options)
    append, known = (
        made.append,
        {
            name: value
            for module in list(sys.modules.values())
            if module.__name__.startswith(f"{OLD}.append")
            for name, value in vars(module).items()
        },
    )

    def translated(topic: str, partition: int, request: Any, **others: Any) -> Any:
        given = {field.name: getattr(request, field.name) for field in fields(request)}
        return append(topic, partition, known[type(request).__name__](**given), **others)

    made.append = translated
    return made


@contextmanager
def _mixed(started: Counter[str]) -> Iterator[None]:
    """Let processes start as each version in turn, and each of them as the other one after a death."""

    def start(objects: ports.ObjectStore, items: ports.ItemStore, runtime: Any, **options: Any) -> Any:
        process = runtime._process
        others = process.world.processes
        number = others.index(process) if process in others else len(others)
        make: Callable[..., Any] = (Log, _old_log)[(number + process.lives) % 2]
        started["old" if make is _old_log else "new"] += 1
        return make(objects, items, runtime, **options)

    def by_version(name: str, here: str) -> Callable[..., Any]:
        new, old = (getattr(import_module(f"{version}.{here}"), name) for version in ("fenceline", OLD))
        return lambda log, *others, **named: (old if is_old(log) else new)(log, *others, **named)

    with ExitStack() as stack:
        for module in (real, regions):
            stack.enter_context(patch.object(module, "Log", start))
        for module, name, here in CALLED:
            stack.enter_context(patch.object(module, name, by_version(name, here)))
        yield


def compare(seeds: Sequence[int], names: Sequence[str] | None = None) -> list[str]:
    """Play seeds of each scenario in worlds of both versions; return what those that found something found.

    A single seed that finds something also gives its history.
    """
    found: list[str] = []
    for name in names or SCENARIOS:
        started: Counter[str] = Counter()
        failed = 0
        with _mixed(started):
            for seed in seeds:
                try:
                    SCENARIOS[name].run_seed(seed)
                except Failed as failure:
                    failed += 1
                    found += failure.run.history.lines() if len(seeds) == 1 else []
                    found.append(f"{name}, seed {seed}: {type(failure.__cause__).__name__}: {failure.__cause__}")
        print(f"{name}: {len(seeds)} seeds, {failed} failed; processes started: {dict(started)}", flush=True)
    return found
