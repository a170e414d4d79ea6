"""The README promises nothing that no test shows, and shows nothing that no test runs."""

from __future__ import annotations

import re
import subprocess

import pytest

import fenceline
from fenceline_testing.service import in_memory
from tests.servers.install import AWS_CDK
from tests.support.law import PROTOCOL
from tests.support.readme import COMMANDS, PYTHON, ROOT, TEXT, commands_of

PROMISES_PAGE = PROTOCOL["promises"]
NAMED = sorted(set(re.findall(r"`(tests/[^`]*\.py[^`]*)`", TEXT + PROMISES_PAGE)))
LINKED = sorted(set(re.findall(r"\]\(([^)]+)\)", TEXT)))
PROMISES = PROMISES_PAGE.partition("| promise | shown by |")[2].partition("\n\n")[0].strip().splitlines()[1:]


def test_the_readme_can_be_read_in_one_sitting() -> None:
    assert len(TEXT.splitlines()) <= 120


@pytest.mark.parametrize("named", NAMED)
def test_every_named_path_is_there(named: str) -> None:
    path, _, name = named.partition("::")
    assert (ROOT / path).exists()
    if name:
        assert f"\ndef {name}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("linked", LINKED)
def test_every_linked_path_is_there(linked: str) -> None:
    assert (ROOT / linked).exists()


def test_each_promise_names_the_test_that_shows_it() -> None:
    assert len(PROMISES) >= 10
    for line in PROMISES:
        promise, shown_by = (cell.strip() for cell in line.strip("|").split(" | "))
        tests = shown_by.split(", ")
        assert promise.startswith("**")
        assert all(re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`", test) for test in tests), line


def test_every_block_is_run_by_a_test() -> None:
    """The test is in this file, in tests/e2e, or in test_readme.py, test_examples.py or test_demo.py of processes."""
    begins = [block.split()[0:3] for block in COMMANDS]
    assert begins == [
        ["make", "demo", "#"],  # here, and test_demo.py
        [".venv/bin/fenceline", "dev", "--data"],  # test_readme.py of processes, as the next two
        ["curl", "-s", "localhost:8080/v1/topics/orders/records"],
        [".venv/bin/fenceline", "topic", "create"],
        [
            ".venv/bin/python",
            "examples/replicated_kv.py",
            "#",
        ],  # test_examples.py; the lock: test_readme.py of processes
        [".venv/bin/fenceline", "topic", "create"],  # test_readme.py of processes; the example: test_examples.py
        [".venv/bin/fenceline", "dev", "--data"],  # test_readme.py of processes; the example: test_failover_example.py
        ["npx", f"aws-cdk@{AWS_CDK}", "deploy"],  # tests/e2e
    ]
    assert len(PYTHON) == 4  # the one on Spark: test_page.py of spark
    assert len(re.findall(r"^```\w", TEXT, re.MULTILINE)) == len(COMMANDS) + len(PYTHON) + 1  # + 1: the picture
    assert len(re.findall(r"^```$", TEXT, re.MULTILINE)) == len(COMMANDS) + len(PYTHON) + 1


def test_make_runs_the_demo_and_the_tests_as_it_says() -> None:
    demo, test = (command.split()[:2] for command in commands_of(COMMANDS[0]))
    planned = subprocess.run(["make", "-n", *demo[1:]], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert ".venv/bin/python examples/demo.py" in planned.splitlines()  # run by test_demo.py
    assert f"make {test[1]}" in (ROOT / ".ci" / "run").read_text()


def test_each_request_says_what_it_sends() -> None:
    """Curl's own content type is a form's, which is refused."""
    sending = [command for command in commands_of(COMMANDS[2]) if " -d " in command]
    assert sending
    assert all("content-type: application/json" in command for command in sending)


def test_the_python_code_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third, _ = PYTHON
    with in_memory() as served:
        client = served.client
        client.create_topic("orders", partitions=4)  # as by the README's first commands
        monkeypatch.setattr(fenceline, "Client", lambda url: served.another_client())
        exec(first, {})
        assert re.fullmatch(
            r"Delivered\(partition=[0-3], offset=0, is_duplicate=False, next_offset=1\)\n[0-3] 0 b'ann' b'3 books'\n",
            capsys.readouterr().out,
        )

        waiting = "**reading)"
        assert second.count(waiting) == 1
        exec(second.replace(waiting, "**reading, follow=False)"), {"Client": fenceline.Client})
        assert [record.value for _, record in client.reader("orders")].count(b"4 books") == 1
        assert client.ownership("orders/0", group="billing").generation == 7
        backlogs = {one.partition: one.backlog for one in client.subscription("orders", "billing").partitions}
        assert backlogs[0] == 0
        assert sum(backlogs.values()) == 1  # in ann's partition, another one

        client.create_topic("copy", partitions=4)
        exec(third, {"client": client, "CommittedOffset": fenceline.CommittedOffset})
        paid = [record for _, record in client.reader("copy", start="earliest", isolation="read_committed")]
        assert [(record.key, record.value) for record in paid] == [(b"ann", b"paid")]
        (first_committed, *_) = client.committed_offsets("billing", topic="orders")
        assert (first_committed.partition, first_committed.offset) == (0, 1)
