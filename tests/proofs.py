"""What is proved, one by one, and by which run: ``python -m tests.proofs`` writes it into CONTRIBUTING.md.

Rule: all of it is read from what the tests declare, so the page can't name a proof that is not run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import fill

from models.bounds import MODELS
from models.runner import HERE as MODELS_FOLDER
from tests.simulation.crash.matrix import ALL_OPERATIONS
from tests.simulation.crash.rows import rows_of_design
from tests.simulation.scenarios import all_guards
from tests.support.law import INVARIANTS
from tests.support.readme import ROOT

TITLE = "## What is proved, and by what\n"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"

# Files with tests that are marked ``prove``, and what CI proves of the same.
AT_NIGHT = {
    "tests/simulation/crash/test_crash_matrix.py": (
        "deaths, lost answers and late landings at every store call; each row of the table is seen",
        "A death at a read leaves what the write before it left. CI has a death at every write, and a row of the table "
        "accounts for all that each leaves.",
    ),
    "tests/spark/test_attempts_of_tasks.py": (
        "speculative and repeated attempts of tasks",
        "They start Spark six times. CI loses a task's process in `test_driver_crashes.py`.",
    ),
    "tests/spark/test_bench.py": (
        "the benchmark of Spark runs",
        "It shows nothing of the product. CI tests what it counts by.",
    ),
    "tests/spark/test_demo.py": (
        "the demo, whose driver is killed three times",
        "Spark starts four times. CI tries the demo's comparisons, and kills drivers in `test_driver_crashes.py`.",
    ),
    "tests/spark/test_driver_crashes.py": (
        "a driver is killed at each request",
        "CI has each kind of death once.",
    ),
    "tests/spark/test_elsewhere.py": (
        "a job on a machine that has fenceline",
        "CI submits the same job to a cluster that lacks it.",
    ),
    "tests/spark/test_kafka_compared.py": (
        "the source beside Kafka and its connector",
        "They are a broker and 80 reads. CI has what the source promises, without the comparison.",
    ),
    "tests/spark/test_sink_crashes.py": (
        "every request of a batch fails in every way",
        "CI has the first and the last request of each kind.",
    ),
    "tests/versions/test_versions.py": (
        "a difference between two versions is found where both work side by side",
        "It tests the comparison and not the product. CI finds a difference in answers and stored bytes.",
    ),
    "tests/cli/test_transaction_processes.py": (
        "a run that is killed again and again, by two more seeds",
        "Another seed is more of the same. CI has one.",
    ),
    "tests/contract/conftest.py": (
        "moto as a store; items on ministack",
        "They are second servers. CI has versitygw and ministack for objects, DynamoDB Local for items.",
    ),
    "tests/docs/test_blocks.py": (
        "the blocks of two more pages on Spark",
        "Each block starts Spark. CI has one page, and the Python code of the reference's pages.",
    ),
    "tests/docs/test_browser.py": (
        "a page of each further kind in the browser",
        "Each takes 7 s of CPU. CI has a page with each thing that pages are made of, and all searches.",
    ),
    "tests/e2e/conftest.py": (
        "the black-box tests on moto, and on `fenceline dev`",
        "CI has them in memory and deployed. The blocks of each page run on `fenceline dev`.",
    ),
    "tests/e2e/test_page.py": (
        "a stranger deploys a region as the page on AWS says",
        "It is a third deployment by the same toolkit. CI deploys two regions, and looks whether all that the page "
        "types is there.",
    ),
    "tests/http/test_generated_client.py": (
        "clients generated in Java and Go",
        "Their generators and compilers take 20 s. CI has Python and TypeScript.",
    ),
    "tests/http/test_properties.py": (
        "500 examples of each property",
        "CI tries 30.",
    ),
    "tests/http/test_schemathesis.py": (
        "100 examples of each operation",
        "CI tries two, and `test_declared_forms.py` makes each wrong form of each request.",
    ),
    "tests/infra/test_bundling.py": (
        "the bundle for this machine has the same bytes again",
        "CI has the bundle for Lambda.",
    ),
    "tests/infra/test_stack.py": (
        "the rules of AwsSolutions and cfn-lint for the plain deployment and for a trial",
        "CI has them for a deployment with every option.",
    ),
    "tests/infra/test_stack_with_peers.py": (
        "the same rules for one peer, and in an account that is known",
        "CI has them for all peers.",
    ),
    "tests/models/test_models.py": (
        "each guard of the models, switched off; further bounds; rules that are changed in a copy",
        "Each takes seconds of Java, and only a change of a model changes it; `make models` is run before and after "
        "one. CI checks each model whole, one guard of each, and recorded runs of the code.",
    ),
    "tests/models/test_traces.py": (
        "two more recorded runs of the code for each model",
        "Another run is more of the same. CI has two for each model, and `make simulate` fifty.",
    ),
    "tests/processes/test_bench.py": (
        "the benchmark on real servers",
        "It shows nothing of the product. CI tests what the benchmark counts by, in `tests/unit/benchmarks`.",
    ),
    "tests/processes/test_combining.py": (
        "32 processes, 20 blows",
        "CI has 8 processes and 12 blows.",
    ),
    "tests/processes/test_crash.py": (
        "50 kills of a server",
        "CI has 12.",
    ),
    "tests/processes/test_examples.py": (
        "another seed of the word count",
        "CI has one.",
    ),
    "tests/processes/test_faults.py": (
        "four times as long, and on ministack",
        "CI goes on until each kind of fault was met, on versitygw and DynamoDB Local.",
    ),
    "tests/processes/test_groups.py": (
        "12 members of 48 partitions, harmed for a minute",
        "CI harms 6 members of 24 partitions once, in each way, with the same checks.",
    ),
    "tests/processes/test_groups_bench.py": (
        "the benchmark of groups on real servers",
        "It shows nothing of the product. CI tests what it counts by, in `tests/unit/benchmarks/test_groups.py`.",
    ),
    "tests/processes/test_once.py": (
        "12 rounds",
        "CI kills and stops each role once.",
    ),
    "tests/processes/test_regions_bench.py": (
        "the benchmark of regions",
        "It shows nothing of the product. CI counts the same in `tests/protocol/regions`, and kills regions in "
        "`test_regions.py`.",
    ),
    "tests/processes/test_takeover.py": (
        "20 takeovers, and 10 with two workers",
        "They wait for leases. CI has 6 and 4.",
    ),
    "tests/processes/test_transactions.py": (
        "20 rounds",
        "CI kills and stops each role once.",
    ),
    "tests/protocol/read/test_aborted_index.py": (
        "100,000 aborted transactions",
        "CI has 10,000, with the same bounds.",
    ),
    "tests/protocol/regions/test_region_histories.py": (
        "200 histories",
        "CI has 40.",
    ),
    "tests/protocol/sweeper/test_sweep.py": (
        "a change at every moment of a sweep",
        "CI has one at every eleventh store call.",
    ),
}


def page() -> str:
    """Return the section of CONTRIBUTING.md, from its title to the next one."""
    return "\n".join([TITLE, *_opening(), *_invariants(), *_guards(), *_models(), *_crashes(), *_night()])


def replaced(text: str) -> str:
    """Return a text of CONTRIBUTING.md with this section as it should be."""
    before, title, after = text.partition(TITLE)
    assert title, "the page has no such section"
    return before + page() + "\n## " + after.partition("\n## ")[2]


def marked_files() -> set[str]:
    """Return the files that mark a test ``prove``."""
    tests = (ROOT / "tests").rglob("*.py")
    return {
        str(path.relative_to(ROOT)) for path in tests if "mark.prove" in path.read_text() and path != Path(__file__)
    }


def _opening() -> Iterator[str]:
    yield "`.venv/bin/python -m tests.proofs` writes this section from what the tests declare. A test compares both.\n"


def _table(columns: str, rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield columns
    yield "|---" * (columns.count("|") - 1) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _invariants() -> Iterator[str]:
    stated = sorted(INVARIANTS, key=lambda name: int(name[1:]))
    cited = _citations()
    modelled = {name: [model for model in MODELS if name in _modelled(model)] for name in stated}
    yield "**Invariants** of the protocol. CI runs all of these tests and models, and `make simulate` more seeds.\n"
    rows = ((name, ", ".join(cited[name]), ", ".join(modelled[name]) or "–") for name in stated)
    yield from _table("| invariant | folders of `tests/` that cite it | models |", rows)


def _citations() -> dict[str, list[str]]:
    """Return, by invariant, the folders of tests that cite it."""
    cited: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "tests").rglob("*.py"):
        for name in re.findall(r"\bI\d{1,2}\b", path.read_text()):
            cited[name].add("/".join(path.relative_to(ROOT / "tests").parts[:-1]))
    return {name: sorted(folders - {""}) for name, folders in cited.items()}


def _modelled(model: str) -> set[str]:
    """Return the invariants of the protocol that a model's invariants are named for."""
    checked = (MODELS_FOLDER / f"{model}.cfg").read_text().partition("INVARIANTS\n")[2].partition("CHECK_")[0]
    return set(re.findall(r"\bI\d+", checked.replace("_", " ")))


def _guards() -> Iterator[str]:
    by_scenario: dict[str, list[str]] = defaultdict(list)
    for guard in all_guards():
        by_scenario[guard.scenario].append(f"`{guard.name}`")
    yield "**Guards of the code**, each switched off. CI plays the seed that finds it, and then with the guard.\n"
    rows = ((scenario, str(len(names)), ", ".join(names)) for scenario, names in by_scenario.items())
    yield from _table("| simulation | guards | switched off |", rows)


def _models() -> Iterator[str]:
    yield "**Guards of the models**, each switched off, so that the invariant falls which it keeps."
    yield "CI checks the first of each model, `make prove` all.\n"
    rows = (
        (name, str(len(model.guards)), ", ".join(f"`{guard}`" for guard in model.guards))
        for name, model in MODELS.items()
    )
    yield from _table("| model | guards | switched off |", rows)


def _crashes() -> Iterator[str]:
    yield "**Crashes.** In CI the process dies at each write of each operation, and an operation that mends it follows."
    yield 'A row of the table "What a crash leaves" accounts for all that is left. `make prove` sees each row:\n'
    yield from (f"- `{row.replace('`', '')}`" for row in rows_of_design())
    names = "; ".join(operation.name for operation in ALL_OPERATIONS)
    yield f"\nThe {len(ALL_OPERATIONS)} operations:\n\n```text\n{fill(names, 120)}\n```\n"
    yield 'Spark\'s crashes have a table of their own (protocol, "Exactly once on Spark"), which names the tests.\n'


def _night() -> Iterator[str]:
    yield "**At night** (`make prove`), beside `make simulate`:\n"
    rows = ((f"`{file}`", what, why) for file, (what, why) in sorted(AT_NIGHT.items()))
    yield from _table("| file | what | why not in CI, and what CI proves of it |", rows)


if __name__ == "__main__":
    CONTRIBUTING.write_text(replaced(CONTRIBUTING.read_text()))
