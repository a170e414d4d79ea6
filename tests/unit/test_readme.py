"""The README promises nothing that no test shows, and names no test that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fenceline
from fenceline.batch import Record
from fenceline.testing import in_memory

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[^`]*)`", TEXT)))
PROMISES = TEXT.partition("| promise | shown by |")[2].partition("\n\n")[0].strip().splitlines()[1:]


@pytest.mark.parametrize("named", NAMED)
def test_what_the_readme_names_is_there(named: str) -> None:
    path, _, name = named.partition("::")
    assert (ROOT / path).exists()
    if name:
        assert f"\ndef {name}(" in (ROOT / path).read_text()


def test_each_promise_names_the_test_that_shows_it() -> None:
    assert len(PROMISES) >= 10
    for line in PROMISES:
        promise, shown_by = (cell.strip() for cell in line.strip("|").split(" | "))
        tests = shown_by.split(", ")
        assert promise.startswith("**")
        assert all(re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`", test) for test in tests), line


def test_each_request_of_the_readme_says_what_it_sends() -> None:
    """Curl's own content type is a form's, which is refused."""
    commands = re.findall(r"^curl ((?:.*\\\n)*.*)", TEXT, re.MULTILINE)
    assert commands
    assert all("content-type: application/json" in command for command in commands if " -d " in command)


def test_what_the_readme_shows_in_python_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    with in_memory() as served:
        client = served.client
        client.create_topic("orders", partitions=4)  # as the README's curl makes it
        monkeypatch.setattr(fenceline, "Client", lambda url: served.another_client())
        exec(first, {})
        assert re.fullmatch(
            r"Delivered\(partition=[0-3], offset=0, is_duplicate=False, next_offset=1\)\n[0-3] 0 b'ann' b'1 book'\n",
            capsys.readouterr().out,
        )

        waiting = "session=owner.session"
        assert second.count(waiting) == 1
        exec(second.replace(waiting, f"{waiting}, follow=False"), {"Client": fenceline.Client})
        assert [record.value for _, record in client.reader("orders")].count(b"2 books") == 1
        assert client.ownership("orders/0", group="billing").generation == 7
        assert [one.backlog for one in client.subscription("orders", "billing").partitions] == [0, 0, 1, 0]

    def send_order(client: fenceline.Client, order: str) -> None:
        client.produce("orders", 0, [Record(order.encode())])

    shown: dict[str, Any] = {"my_program": SimpleNamespace(send_order=send_order)}
    exec(third, shown)
    with in_memory() as served:
        shown["test_an_order_is_sent_once"](served)
