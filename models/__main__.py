"""Check the models, and each of them with each of its guards off: then what the guard is for must fall.

Needs Java 11 or newer. Maven fetches the checker once. A table ends with 1 if a line is not as models/bounds.py says.

All models; one; the shortest history that is found without one guard; larger bounds, which take minutes::

    python -m models
    python -m models Append
    python -m models Append --without "judge while young"
    python -m models --deep
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from models.bounds import MODELS
from models.runner import Found, ModelError, check, comment_of

NOTHING = "nothing"


@dataclass(frozen=True)
class Line:
    """A line of the table: what is run, and what must be found."""

    model: str
    run: str
    falls: str  # "": nothing may
    check: Callable[[], Found]


def lines(names: Sequence[str], *, is_deep: bool) -> Iterator[Line]:
    for name in names:
        model = MODELS[name]
        if is_deep:
            for label, deep in model.deep.items():
                told = f"{label}, {deep.histories:,} random histories" if deep.histories else label
                yield Line(name, told, "", partial(check, name, deep=deep))
            continue
        yield Line(name, "as it is", "", partial(check, name))
        for label, bounds in model.runs.items():
            yield Line(name, f"as it is: {label}", "", partial(check, name, bounds=bounds))
        for label, guard in model.guards.items():
            yield Line(name, f"without: {label}", guard.falls, partial(check, name, off=label, bounds=guard.bounds))
        for fault in model.faults:
            run = partial(check, name, fault=fault, bounds=fault.bounds)
            yield Line(name, f"changed: {fault.name}", fault.falls, run)


def tabulate(names: Sequence[str], *, is_deep: bool) -> int:
    """Print a line for each run, as soon as it and those before it are done. Return 1 if one is not as it must be."""
    wanted = list(lines(names, is_deep=is_deep))
    wide = max(len(line.run) for line in wanted)
    failed = 0
    with ThreadPoolExecutor(1 if is_deep else os.cpu_count()) as pool:  # a deep run takes all processors
        for line, future in [(line, pool.submit(line.check)) for line in wanted]:
            found = future.result()
            if line is wanted[0]:
                print(f"{'model':<12}{'':<{wide + 2}}{'states':>10} {'seconds':>8} {'steps':>6}  what falls")
            steps = found.steps or "–"
            end = ""
            if found.falls != line.falls:
                failed += 1
                end = f"   <-- must be: {line.falls or NOTHING}"
            told = f"{line.model:<12}{line.run:<{wide + 2}}{found.states:>10,} {found.seconds:>8.1f} {steps:>6}"
            print(f"{told}  {found.falls or NOTHING}{end}", flush=True)
    if failed:
        print(f"{failed} of {len(wanted)} lines are not as models/bounds.py says", file=sys.stderr)
    return min(failed, 1)


def tell(name: str, guard: str) -> int:
    """Print the history that is found without a guard, as numbered sentences. Return 1 if none is found."""
    known = MODELS[name].guards[guard]
    found = check(name, off=guard, bounds=known.bounds)
    print(f'{name} without "{guard}": {found.states:,} states, {found.seconds:.1f} s\n')
    if not found.violated:
        print(f"Nothing falls. The guard is {known.why}.")
        return 0 if not known.falls else 1
    for number, sentence in enumerate(found.story(), 1):
        print(f"{number:>3}. {sentence}")
    print(f"\n{found.violated}{f' ({found.wrong})' if found.wrong else ''} does not hold then:")
    print(f"  {comment_of(name, found.violated)}")
    return 0 if found.falls == known.falls else 1


def main(arguments: Sequence[str] | None = None) -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m models", description=(__doc__ or "").replace("::", ":"), formatter_class=formatter
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help=f"one of {', '.join(MODELS)}; all if left out")
    parser.add_argument("--without", metavar="GUARD", help="tell the history that is found without this guard")
    parser.add_argument("--deep", action="store_true", help="check larger bounds, which takes minutes")
    given = parser.parse_args(arguments)
    try:
        if given.model is not None and given.model not in MODELS:
            raise ModelError(f"there is no such model; model={given.model} models={', '.join(MODELS)}")
        names = [given.model] if given.model else list(MODELS)
        if given.without is None:
            return tabulate(names, is_deep=given.deep)
        having = [name for name in names if given.without in MODELS[name].guards]
        if not having:
            known = "; ".join(f"{name}: {', '.join(MODELS[name].guards)}" for name in names)
            raise ModelError(f"there is no such guard; guard={given.without} guards={known}")
        return max(tell(name, given.without) for name in having)
    except ModelError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
