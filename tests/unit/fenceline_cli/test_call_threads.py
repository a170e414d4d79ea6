"""The threads of the local server."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fenceline_cli.dev_server.call_threads import CallThreads
from tests.support.patience import PATIENCE_S


def name() -> str:
    return threading.current_thread().name


def run(main: Callable[[CallThreads], Coroutine[Any, Any, None]], threads_max: int = 2) -> None:
    """Run in an event loop, and end the threads."""
    threads = CallThreads(threads_max, "call")
    try:
        asyncio.run(main(threads))
    finally:
        threads.stop()
    assert threads.join(time.monotonic() + PATIENCE_S)


def test_a_thread_is_started_only_where_all_others_are_busy() -> None:
    async def main(threads: CallThreads) -> None:
        assert {await threads.submit(name) for _ in range(20)} == {"call_0"}

    run(main)


def test_as_many_calls_run_at_once_as_there_may_be_threads_and_the_others_wait() -> None:
    meeting, order = threading.Barrier(3), list[str]()

    def meet() -> str:
        meeting.wait(PATIENCE_S)
        return name()

    async def main(threads: CallThreads) -> None:
        both = threads.submit(meet), threads.submit(meet)
        after = threads.submit(order.append, "after")  # Both threads wait here.
        assert order == []
        meeting.wait(PATIENCE_S)
        assert {await one for one in both} == {"call_0", "call_1"}
        await after
        assert order == ["after"]

    run(main)


def test_an_exception_of_a_call_is_raised_by_its_await_and_its_thread_goes_on() -> None:
    async def main(threads: CallThreads) -> None:
        with pytest.raises(ZeroDivisionError):
            await threads.submit(divmod, 1, 0)
        assert await threads.submit(name) == "call_0"

    run(main, threads_max=1)


def test_a_thread_that_waits_keeps_nothing_of_the_call_before() -> None:
    class Body:
        def read(self) -> None: ...

    async def main(threads: CallThreads) -> None:
        body = Body()
        kept = weakref.ref(body)
        await threads.submit(body.read)
        del body
        async with asyncio.timeout(PATIENCE_S):
            while kept() is not None:  # until the thread waits again
                await asyncio.sleep(0)

    gc.disable()
    try:
        run(main, threads_max=1)
    finally:
        gc.enable()


def test_a_call_that_was_cancelled_before_it_began_is_not_begun() -> None:
    may_end, begun = threading.Event(), list[int]()

    async def main(threads: CallThreads) -> None:
        first, second = threads.submit(may_end.wait, PATIENCE_S), threads.submit(begun.append, 2)
        second.cancel()
        third = threads.submit(begun.append, 3)
        may_end.set()
        assert await first
        await third
        assert begun == [3]
        assert await threads.submit(name) == "call_0"

    run(main, threads_max=1)


def test_the_outcome_of_a_call_that_was_cancelled_under_way_is_dropped() -> None:
    is_under_way, may_end = threading.Event(), threading.Event()
    failures: list[dict[str, Any]] = []

    def hang() -> None:
        is_under_way.set()
        assert may_end.wait(PATIENCE_S)

    async def main(threads: CallThreads) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        call = threads.submit(hang)
        assert is_under_way.wait(PATIENCE_S)
        call.cancel()
        may_end.set()
        assert await threads.submit(name) == "call_0"

    run(main, threads_max=1)
    assert failures == []


def test_a_stop_begins_no_waiting_call_and_reports_a_hanging_one() -> None:
    is_under_way, may_end, is_begun = threading.Event(), threading.Event(), threading.Event()
    threads = CallThreads(1, "call")

    def hang() -> None:
        is_under_way.set()
        assert may_end.wait(PATIENCE_S)

    async def main() -> None:
        threads.submit(hang)
        threads.submit(is_begun.set)
        assert is_under_way.wait(PATIENCE_S)

    asyncio.run(main())
    threads.stop()
    assert not threads.join(time.monotonic())
    may_end.set()  # Its loop has ended: nothing waits for its outcome.
    assert threads.join(time.monotonic() + PATIENCE_S)
    assert not is_begun.is_set()
