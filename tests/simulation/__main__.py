"""Run seeds: ``python -m tests.simulation --seeds 1000 [--from N]``, or replay one: ``--seed N --print``.

``--scenario access`` is about exclusive access: claims, sessions and ownership. ``--scenario combining`` is about
processes that contend for one partition. ``--scenario transactions`` is about transactions and the offsets in them.
``--scenario once`` is about transactions that end together, with a version. ``--scenario regions`` is about records and
subscriptions that travel.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.simulation.access import scenario as access_scenario
from tests.simulation.harness import real
from tests.simulation.harness.scenario import Failed
from tests.simulation.log import combining, scenario
from tests.simulation.once import scenario as once_scenario
from tests.simulation.regions import scenario as regions_scenario
from tests.simulation.transactions import scenario as transactions_scenario

RUNS: dict[str, tuple[Callable[[int], Any], Callable[[int], object]]] = {
    "log": (lambda seed: scenario.run_seed(seed, real.subject()), scenario.draw_plan),
    "combining": (combining.run_seed, combining.draw_plan),
    "access": (access_scenario.run_seed, access_scenario.draw_plan),
    "transactions": (transactions_scenario.run_seed, transactions_scenario.draw_plan),
    "once": (once_scenario.run_seed, once_scenario.draw_plan),
    "regions": (regions_scenario.run_seed, regions_scenario.draw_plan),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--scenario", choices=tuple(RUNS), default="log", help="what is played (default log)")
    parser.add_argument("--seeds", type=int, default=300, help="how many (default 300)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first (default 0)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--print", action="store_true", dest="prints", help="print each seed's history")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first that fails")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    run_seed, draw_plan = RUNS[arguments.scenario]
    began, failed = time.monotonic(), []
    for seed in seeds:
        try:
            run = run_seed(seed)
        except Failed as failure:
            failed.append(seed)
            run = failure.run
            if arguments.prints or not arguments.keep_going:
                print(*run.history.lines(), sep="\n")
                print(draw_plan(seed))
                traceback.print_exception(failure.__cause__)
            print(failure)
            if not arguments.keep_going:
                return 1
        else:
            if arguments.prints:
                print(*run.history.lines(), sep="\n")
                print(draw_plan(seed))
    print(f"{len(seeds)} seeds, {len(failed)} failed, {time.monotonic() - began:.1f} s", *failed[:20])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
