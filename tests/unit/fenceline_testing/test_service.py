"""The services that users' tests get."""

from __future__ import annotations

import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import fenceline_testing
from fenceline import Client, Record, errors
from fenceline.log.partition import Partition
from fenceline.ports import AlreadyExists, ItemKey, Put, VersionMoved
from fenceline_testing.service import in_memory, locked_moto, on_moto, serving
from tests.support.patience import PATIENCE_S

pytest_plugins = ["pytester"]

ROUNDS, WRITERS = 40, 8


def test_two_services_share_nothing() -> None:
    with in_memory() as one, in_memory() as other:
        one.client.create_topic("orders")
        assert not list(other.client.topics())
        assert [topic.name for topic in one.client.topics()] == ["orders"]


def test_a_lent_service_leaves_the_process_its_own() -> None:
    from fenceline_http import wiring

    before = wiring.service
    with in_memory() as lent:
        lent.client.create_topic("orders")
        assert wiring.service is before
    assert wiring.service is before


def test_a_served_fenceline_answers_every_client_at_its_url_and_ends_with_its_block() -> None:
    with serving() as lent:
        lent.client.create_topic("orders")
        with Client(lent.url) as own, lent.another_client() as another:
            appended = own.produce("orders", 0, [Record(b"book")])
            assert [record.value for record in another.read("orders", 0, offset=0).records] == [b"book"]
            assert (appended.next_offset, lent.service.log.topics.get("orders").partitions) == (1, 1)
            [segment] = another.segments("orders", 0).segments
            assert httpx.get(segment.url).content == lent.fetch(segment.url)
    with pytest.raises(errors.StoreUnavailableError, match="connection refused"):
        Client(lent.url, retry_ms=0).health()


def test_two_served_fencelines_and_one_in_memory_share_nothing() -> None:
    with serving() as one, serving() as two, in_memory() as three:
        for number, lent in enumerate((one, two, three)):
            lent.client.create_topic(f"t{number}")
        assert [[topic.name for topic in lent.client.topics()] for lent in (one, two, three)] == [
            ["t0"],
            ["t1"],
            ["t2"],
        ]


def test_a_served_fenceline_waits_for_no_poll_that_is_held_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    held, wait = threading.Event(), Partition.wait

    def noted_wait(*given: Any) -> None:
        held.set()
        wait(*given)

    monkeypatch.setattr(Partition, "wait", noted_wait)
    answered: list[object] = []

    def poll() -> None:
        with lent.another_client() as client:
            answered.append(client.read("orders", 0, offset=0, wait_ms=20_000).records)

    with serving() as lent:
        lent.client.create_topic("orders")
        waiting = threading.Thread(target=poll)
        waiting.start()
        assert held.wait(PATIENCE_S)
    waiting.join(PATIENCE_S)
    assert answered == [[]]


LACKING = {
    "uvicorn": {"fenceline_server": 'fenceline_server lacks packages; run: pip install "fenceline-log[server]"'},
    "httptools": {"fenceline_server": 'fenceline_server lacks packages; run: pip install "fenceline-log[server]"'},
    "boto3": {"fenceline_on_moto": 'fenceline_on_moto lacks packages; run: pip install "fenceline-log[aws]"'},
    "obstore": {"fenceline_on_moto": 'fenceline_on_moto lacks packages; run: pip install "fenceline-log[aws]"'},
    "flask": {"fenceline_on_moto": 'fenceline_on_moto lacks packages; run: pip install "moto[server]"'},
    "moto": {"fenceline_on_moto": 'fenceline_on_moto lacks packages; run: pip install "moto[server]"'},
    "boto3 moto": {
        "fenceline_on_moto": 'fenceline_on_moto lacks packages; run: pip install "fenceline-log[aws]" "moto[server]"'
    },
}


@pytest.mark.parametrize(
    ("lacking", "fixture", "expected"),
    [(one, name, expected) for one, lines in LACKING.items() for name, expected in lines.items()],
)
def test_a_fixture_that_lacks_something_fails_with_the_line_that_installs_it(
    lacking: str, fixture: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in lacking.split():
        monkeypatch.setitem(sys.modules, module, None)
    made = getattr(fenceline_testing, fixture).__wrapped__()
    with pytest.raises(pytest.fail.Exception) as caught:
        next(made)
    assert (caught.value.msg, caught.value.pytrace) == (expected, False)


@pytest.mark.slow
def test_no_race_has_two_winners_on_moto() -> None:
    """Without its lock moto lets two writers win one item, or one key, in many rounds out of as many as here."""
    barrier = threading.Barrier(WRITERS)
    with on_moto() as lent, ThreadPoolExecutor(WRITERS) as pool:

        def write(number: int) -> bool:
            key = ItemKey("race", str(number))
            barrier.wait()
            try:
                lent.service.items.write([Put(key, {"v": bytes(10_000)}, 1, None)])
            except VersionMoved:
                return False
            return True

        def create(number: int) -> bool:
            barrier.wait()
            try:
                lent.service.objects.create(f"log/{number}", bytes(1_000_000), {})
            except AlreadyExists:
                return False
            return True

        for race in (write, create):
            assert [sum(pool.map(race, [number] * WRITERS)) for number in range(ROUNDS)] == [1] * ROUNDS


def test_moto_is_as_it_was_when_the_block_ends() -> None:
    from moto.core.botocore_stubber import BotocoreStubber
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    patched = BotocoreStubber, DomainDispatcherApplication
    before = [one.__call__ for one in patched]
    with locked_moto() as url:
        assert all(one.__call__ is not unlocked for one, unlocked in zip(patched, before, strict=True))
    assert [one.__call__ for one in patched] == before
    with pytest.raises(OSError):
        socket.create_connection((urlsplit(url).hostname, urlsplit(url).port))


@pytest.mark.slow
def test_the_fixtures_serve_a_users_tests_as_their_docstring_says(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["fenceline_testing"]')
    pytester.makepyfile(
        """
        import pytest
        from fenceline import Record

        @pytest.mark.parametrize("name", ["fenceline_in_memory", "fenceline_on_moto", "fenceline_server"])
        def test_an_order_is_sent_once(request, name):
            client = request.getfixturevalue(name).client
            client.create_topic("orders")
            client.produce("orders", 0, [Record(b"book")])
            assert [record.value for record in client.read("orders", 0, offset=0).records] == [b"book"]
        """
    )
    pytester.runpytest_subprocess(f"--rootdir={Path.cwd()}").assert_outcomes(passed=3)


@pytest.mark.slow
def test_missing_packages_of_a_fixture_are_one_line_and_no_traceback(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('import sys\nsys.modules["boto3"] = None\npytest_plugins = ["fenceline_testing"]')
    pytester.makepyfile("def test_it(fenceline_on_moto): ...")
    ended = pytester.runpytest_subprocess(f"--rootdir={Path.cwd()}")
    ended.assert_outcomes(errors=1)
    ended.stdout.fnmatch_lines(['fenceline_on_moto lacks packages; run: pip install "fenceline-log?aws?"'])
    ended.stdout.no_fnmatch_line("*Traceback*")
    ended.stdout.no_fnmatch_line("*testing.py:*")
