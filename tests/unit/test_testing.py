"""The services that users' tests get."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fenceline.ports import AlreadyExists, ItemKey, Put, VersionMoved
from fenceline.testing import in_memory, locked_moto, on_moto

pytest_plugins = ["pytester"]

ROUNDS, WRITERS = 40, 8


def test_two_services_share_nothing() -> None:
    with in_memory() as one, in_memory() as other:
        one.client.create_topic("orders")
        assert not list(other.client.topics())
        assert [topic.name for topic in one.client.topics()] == ["orders"]


def test_afterwards_the_functions_of_the_process_are_as_before() -> None:
    from fenceline_functions import wiring

    before = wiring.service
    with in_memory():
        assert wiring.service is not before
    assert wiring.service is before


@pytest.mark.slow
def test_no_race_has_two_winners_on_moto() -> None:
    """moto without its lock lets two writers win one item, or one key, in many of so many rounds."""
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

    before = BotocoreStubber.__call__
    with locked_moto():
        assert BotocoreStubber.__call__ is not before
    assert BotocoreStubber.__call__ is before


@pytest.mark.slow
def test_the_fixtures_serve_a_users_tests_as_their_docstring_says(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["fenceline.testing"]')
    pytester.makepyfile(
        """
        import pytest
        from fenceline import Record

        @pytest.mark.parametrize("name", ["fenceline_in_memory", "fenceline_on_moto"])
        def test_an_order_is_sent_once(request, name):
            client = request.getfixturevalue(name).client
            client.create_topic("orders")
            client.produce("orders", 0, [Record(b"book")])
            assert [record.value for record in client.read("orders", 0, offset=0).records] == [b"book"]
        """
    )
    pytester.runpytest_subprocess(f"--rootdir={Path.cwd()}").assert_outcomes(passed=2)
