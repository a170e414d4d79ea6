"""A TCP proxy before a store: it loses answers, resets connections, and holds requests until their clients give up.

Rule: it does harm only at the start of a request or of its answer, as its dice say. It also replaces the bytes that a
test names. The dice are seeded. Which request meets which throw depends on the threads around it.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.support.patience import PATIENCE_S

CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True)
class Faults:
    """Chances of each fault for a request; delays are in seconds."""

    reset: float = 0.0  # connection reset before the request goes through
    hold: float = 0.0  # request passed on so late that its sender has given up: a late create
    drop: float = 0.0  # request passed on, its answer lost
    delay: float = 0.0  # answer late
    hold_s: tuple[float, float] = (5.5, 9.0)
    delay_s: tuple[float, float] = (0.05, 1.0)


@dataclass
class Proxy:
    """A proxy that runs; ``faults`` may be changed meanwhile."""

    target: tuple[str, int]
    faults: Faults
    chance: random.Random
    request_delay_s: float = 0.0  # added to every request
    replaced: tuple[bytes, bytes] | None = None  # in each request that passes
    on_answer: Callable[[bytes, bytes], None] | None = None  # called with how each request and its answer begin
    url: str = ""
    requests: int = 0  # that have come so far
    met: Counter[str] = field(default_factory=Counter)
    serving: set[Any] = field(default_factory=set)  # held here: asyncio forgets the task of a client that has left

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self.serving.add(task)
        try:
            await self._pass(reader, writer)
        finally:
            self.serving.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, reader, writer, up_reader, up_writer)
        try:
            await asyncio.gather(_quietly(link.requests()), _quietly(link.answers()))
        except asyncio.CancelledError:  # the end of the proxy
            return
        finally:
            for ended in (writer, up_writer):
                ended.transport.abort()


@dataclass
class _Link:
    """One client's connection, and the one to the store that was made for it."""

    proxy: Proxy
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    up_reader: asyncio.StreamReader
    up_writer: asyncio.StreamWriter
    is_answered: bool = True  # no byte sent since the last answer
    request: bytes = b""  # how the last one began

    async def requests(self) -> None:
        while chunk := await self.reader.read(CHUNK_BYTES):
            if self.is_answered:
                self.is_answered = False
                self.request = chunk
                await self._before_request()
            self.up_writer.write(self._changed(chunk))
            await self.up_writer.drain()
        # If it is not answered, what the client sent must still be carried out.
        if self.is_answered:
            self.up_writer.transport.abort()

    async def answers(self) -> None:
        try:
            while chunk := await self.up_reader.read(CHUNK_BYTES):
                # A put asks for "Continue" before it sends its body: the request has only begun.
                if not self.is_answered and not chunk.startswith(b"HTTP/1.1 100 "):
                    self.is_answered = True
                    if self.proxy.on_answer is not None:
                        self.proxy.on_answer(self.request, chunk)
                    await self._before_answer()
                with suppress(ConnectionError):
                    self.writer.write(chunk)
                    await self.writer.drain()
        finally:  # also if the server was killed, which resets its connections
            self.writer.transport.abort()

    def _changed(self, chunk: bytes) -> bytes:
        replaced = self.proxy.replaced
        if replaced is None or replaced[0] not in chunk:
            return chunk
        self.proxy.met["replaced"] += 1
        return chunk.replace(*replaced)

    async def _before_request(self) -> None:
        proxy, faults = self.proxy, self.proxy.faults
        proxy.requests += 1
        if proxy.request_delay_s:
            await asyncio.sleep(proxy.request_delay_s)
        thrown = proxy.chance.random()
        if thrown < faults.reset:
            proxy.met["reset"] += 1
            self._abort()
        elif thrown < faults.reset + faults.hold:
            proxy.met["hold"] += 1
            await asyncio.sleep(proxy.chance.uniform(*faults.hold_s))

    async def _before_answer(self) -> None:
        proxy, faults = self.proxy, self.proxy.faults
        thrown = proxy.chance.random()
        if thrown < faults.drop:
            proxy.met["drop"] += 1
            self._abort()
        elif thrown < faults.drop + faults.delay:
            proxy.met["delay"] += 1
            await asyncio.sleep(proxy.chance.uniform(*faults.delay_s))

    def _abort(self) -> None:
        self.writer.transport.abort()
        self.up_writer.transport.abort()
        raise ConnectionAbortedError


async def _quietly(passing: Coroutine[None, None, None]) -> None:
    with suppress(ConnectionError):
        await passing


@contextmanager
def proxied(
    url: str,
    *,
    faults: Faults | None = None,
    seed: int = 0,
    request_delay_s: float = 0.0,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Iterator[Proxy]:
    """Lend a proxy before the server at ``url``."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy((parts.hostname, parts.port), faults or Faults(), random.Random(seed), request_delay_s)
    loop = new_loop()
    server = loop.run_until_complete(asyncio.start_server(proxy.serve, "127.0.0.1", 0, backlog=1_000))
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever, name="proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    serving = asyncio.all_tasks() - {asyncio.current_task()}
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
