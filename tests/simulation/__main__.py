"""Run seeds: ``python -m tests.simulation --seeds 1000 [--from N]``, or replay one: ``--seed N --print``.

``--scenario access`` is about exclusive access: claims, sessions and ownership. ``--scenario combining`` is about
processes that contend for one partition. ``--scenario transactions`` is about transactions and the offsets in them.
``--scenario once`` is about transactions that end together, with a version. ``--scenario regions`` is about records and
subscriptions that travel. ``--scenario groups`` is about members that share the partitions of topics.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.simulation.harness.scenario import Failed
from tests.simulation.scenarios import SCENARIOS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--scenario", choices=tuple(SCENARIOS), default="log", help="what is played (default log)")
    parser.add_argument("--seeds", type=int, default=300, help="how many (default 300)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first (default 0)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--print", action="store_true", dest="prints", help="print each seed's history")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first that fails")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    scenario = SCENARIOS[arguments.scenario]
    began, failed = time.monotonic(), []
    for seed in seeds:
        try:
            run = scenario.run_seed(seed)
        except Failed as failure:
            failed.append(seed)
            run = failure.run
            if arguments.prints or not arguments.keep_going:
                print(*run.history.lines(), sep="\n")
                print(run.plan)
                traceback.print_exception(failure.__cause__)
            print(failure)
            if not arguments.keep_going:
                return 1
        else:
            if arguments.prints:
                print(*run.history.lines(), sep="\n")
                print(run.plan)
    print(f"{len(seeds)} seeds, {len(failed)} failed, {time.monotonic() - began:.1f} s", *failed[:20])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
