"""Record runs of the simulation, and look for each of them in its model.

50 fresh seeds of each model; one seed, with its lines; a run of code without a guard, which is refused::

    python -m tests.models
    python -m tests.models Append --seed 22 --print
    python -m tests.models Append --seed 22 --without "look after create"
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from models.runner import ModelError
from models.traces import Verdict, explain, in_tla
from tests.models.recorders import RECORDERS


def verdict_on(model: str, without: str, seed: int) -> Verdict:
    return explain(RECORDERS[model].record(seed, without))


def main() -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.models", description=(__doc__ or "").replace("::", ":"), formatter_class=formatter
    )
    parser.add_argument("model", nargs="?", choices=tuple(RECORDERS), metavar="MODEL", help=", ".join(RECORDERS))
    parser.add_argument("--seeds", type=int, default=50, help="how many (default 50)")
    parser.add_argument("--from", type=int, dest="first", help="the first (default: by the time)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--without", default="", metavar="GUARD", help="a guard of the code that is switched off")
    parser.add_argument("--print", action="store_true", dest="prints", help="print each line that was recorded")
    given = parser.parse_args()
    first = int(time.time()) if given.first is None else given.first
    seeds = range(first, first + given.seeds) if given.seed is None else range(given.seed, given.seed + 1)
    refused = 0
    for model in [given.model] if given.model else list(RECORDERS):
        if given.without and given.without not in RECORDERS[model].WITHOUT:
            known = ", ".join(RECORDERS[model].WITHOUT)
            parser.error(f"no run can be recorded without that guard; guard={given.without} guards={known}")
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            for seed, verdict in zip(seeds, pool.map(partial(verdict_on, model, given.without), seeds), strict=True):
                if given.prints:
                    for number, event in enumerate(verdict.recording.events, 1):
                        print(f"{number:>4}  {in_tla(event)}")
                print(f"seed {seed}: {verdict}", flush=True)
                refused += not verdict.is_explained
    return min(refused, 1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ModelError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
