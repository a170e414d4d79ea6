"""A simulated world: processes, their tasks, their clocks, and which task runs next, all drawn from one seed.

Rule: the same seed gives the same history. Tasks are greenlets, which switch only at a pause (around every store call,
in a wait, at a lock), where the seed picks the next task. Time is a number that moves with the steps and jumps when all
tasks sleep. No thread, no real clock and no real sleep takes part.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")

EPOCH_MS = 1_800_000_000_000
STEPS_MAX = 200_000
RESTART_MS_MAX = 5_000


class Killed(BaseException):
    """The end of every task of a process that crashes, thrown into it."""


class Stuck(Exception):
    """Every task waits for another, or they go round for ever."""


class NoReply(Exception):
    """The client of a call left, or its process crashed: the client does not know what became of the call."""


class Refused(Exception):
    """The process is down: the call never reached it."""


@dataclass(eq=False)
class Process:
    """One simulated process: it can crash, freeze and start again; its clocks are its own.

    While a process is frozen, either its monotonic clock does not move, as on a suspended machine, or its wall clock
    may jump. Only one of the two happens, because I7 looks at both clocks, of which one may be wrong.
    """

    world: World
    name: str
    start: Callable[[Process], Any]
    wall_offset_ms: float = 0
    stops_when_frozen: bool = False
    service: Any = None
    is_dead: bool = True
    is_frozen: bool = False
    stood_still_ms: float = 0
    _frozen_at: float = 0
    lives: int = 0
    tasks: list[Task] = field(default_factory=list)
    clients: list[Task] = field(default_factory=list)  # clients that wait for an answer

    def restart(self) -> None:
        """Start with an empty memory, if it is down."""
        if not self.is_dead:
            return
        self.lives += 1
        self.is_dead = False
        self.service = self.start(self)
        self.world.note(self.name, "starts", f"life={self.lives}")

    def crash(self) -> None:
        """End every task of this process where it is; the hub throws, so that a task may crash its own process."""
        if not self.is_dead:
            self.is_dead, self.is_frozen = True, False
            self.service = None
            self.world.note(self.name, "crashes", "")
            self.world.dying.extend(self.tasks)
            self.tasks = []
            for client in self.clients:
                self.world.wake(client)
            self.world.after(self.world.rng.random() * RESTART_MS_MAX, self.restart)

    def freeze(self, duration_ms: float) -> None:
        if self.is_frozen or self.is_dead:
            return
        self.is_frozen, self._frozen_at = True, self.world.now
        self.world.note(self.name, "freezes", f"for={duration_ms / 1000:.0f}s")
        self.world.after(duration_ms, self.thaw)

    def thaw(self) -> None:
        if self.is_frozen:
            self.is_frozen = False
            if self.stops_when_frozen:
                self.stood_still_ms += self.world.now - self._frozen_at
            self.world.note(self.name, "thaws", "")


@dataclass(eq=False)
class Task:
    """One thread of control, of a process or (``None``) of the world outside: a client, or what breaks things."""

    name: str
    process: Process | None
    greenlet: greenlet
    is_parked: bool = False
    parks: int = 0  # a number for each park: a timer of an earlier one is passed over
    was_notified: bool = False


class World:
    """The scheduler: the hub runs in the main greenlet, and every task returns to it at a pause.

    Args:
        is_exact: Whether time is measured. It moves by what tasks sleep and by nothing else, and no task is preempted.
        steps_max: Switches from task to task, after which the run is stuck.
    """

    def __init__(self, seed: int, *, is_exact: bool = False, steps_max: int = STEPS_MAX) -> None:
        self.rng = random.Random(seed)
        self.now: float = 0
        self.step = 0
        self.events: list[tuple[int, float, str, str, str]] = []
        self.failures: list[BaseException] = []
        self.dying: list[Task] = []
        self.processes: list[Process] = []
        self.current: Task | None = None
        self.lock_preemption = self.rng.choice((0.0, 0.2, 0.5))
        self.preemption = self.rng.choice((0.0, 0.0, 0.01, 0.1))  # between two statements
        self._stickiness = self.rng.choice((0.0, 0.3, 0.8))
        self._step_ms = self.rng.choice((0.5, 2.0, 10.0))
        if is_exact:
            self.lock_preemption = self.preemption = self._stickiness = self._step_ms = 0.0
        self._steps_max = steps_max
        self._hub = getcurrent()
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._tasks: dict[Task, None] = {}

    # History

    def note(self, who: str, what: str, detail: str) -> int:
        """Write one line of history; the number returned orders it among all others."""
        self.step += 1
        self.events.append((self.step, self.now, who, what, detail))
        return self.step

    # Tasks

    def spawn(self, name: str, run: Callable[[], object], process: Process | None = None) -> Task:
        def body() -> None:
            try:
                run()
            except Killed:
                pass
            except Exception as failure:  # noqa: BLE001 - the seed fails with it, whatever it is
                self.note(name, "fails", repr(failure))
                self.failures.append(failure)
            finally:
                self._tasks.pop(task, None)
                if process is not None and task in process.tasks:
                    process.tasks.remove(task)

        task = Task(name, process, greenlet(body, parent=self._hub))
        self._tasks[task] = None
        if process is not None:
            process.tasks.append(task)
        self._ready.append(task)
        return task

    def after(self, delay_ms: float, call: Callable[[], None]) -> None:
        """Make ``call`` when the time has come, whatever has become of the task that asked for it."""
        self._count += 1
        heapq.heappush(self._timers, (self.now + delay_ms, self._count, call))

    def pause(self) -> None:
        """Let the seed pick the next task."""
        self._ready.append(self.me())
        self._to_hub()

    def maybe_pause(self) -> None:
        """Be preempted at a lock, sometimes."""
        if self.lock_preemption and self.rng.random() < self.lock_preemption:
            self.pause()

    def maybe_preempt(self) -> None:
        """Be preempted between two statements, sometimes; a task that dies never is."""
        me = self.current
        is_alive = me is not None and me.process is not None and not me.process.is_dead
        if self.preemption and is_alive and self.rng.random() < self.preemption:
            self.pause()

    def sleep(self, duration_ms: float) -> None:
        self.park(max(duration_ms, 0))

    def park(self, timeout_ms: float | None = None) -> bool:
        """Wait to be woken; return True if that was by ``wake`` and not by the time."""
        me = self.me()
        me.is_parked, me.was_notified = True, False
        me.parks += 1
        turn = me.parks
        if timeout_ms is not None:
            self.after(timeout_ms, lambda: self._time_out(me, turn))
        self._to_hub()
        return me.was_notified

    def wake(self, task: Task) -> None:
        if task.is_parked:
            task.is_parked, task.was_notified = False, True
            self._ready.append(task)

    def call(self, process: Process, run: Callable[[Any], T], timeout_ms: float) -> T:
        """Make a request to a process and wait for its answer.

        Raises:
            Refused: The process is down; nothing was done.
            NoReply: It crashed meanwhile, or did not answer in time; the request may still be going on.
        """
        if process.is_dead:
            raise Refused(process.name)
        me, life, answer = self.me(), process.lives, list[tuple[bool, Any]]()

        def serve() -> None:
            try:
                answer.append((True, run(process.service)))
            except Exception as failure:  # noqa: BLE001 - handed to the caller
                answer.append((False, failure))
            self.wake(me)

        deadline = self.now + timeout_ms
        self.spawn(f"{process.name}.{me.name}", serve, process)
        process.clients.append(me)
        try:
            while not answer:
                if self.now >= deadline or process.is_dead or process.lives != life:
                    raise NoReply(process.name)
                self.park(deadline - self.now)
        finally:
            process.clients.remove(me)
        is_answer, value = answer[0]
        if is_answer:
            made: T = value
            return made
        raise value

    # The hub

    def run(self, is_done: Callable[[], bool]) -> None:
        """Run until ``is_done``.

        Raises:
            Stuck: No task can go on.
        """
        rng, last = self.rng, None
        for _ in range(self._steps_max):
            self._reap()
            if self.failures or is_done():
                return
            self.now += rng.random() * self._step_ms
            while self._timers and self._timers[0][0] <= self.now:
                heapq.heappop(self._timers)[2]()
            ready = [task for task in self._ready if task.process is None or not task.process.is_frozen]
            if not ready:
                if not self._timers:
                    raise Stuck("every task waits for another")
                self.now = max(self.now, self._timers[0][0])
                continue
            if last not in ready or rng.random() >= self._stickiness:
                last = ready[int(rng.random() * len(ready))]
            self._ready.remove(last)
            self.current = last
            last.greenlet.switch()
        raise Stuck(f"not done after {self._steps_max} steps")

    def close(self) -> None:
        """End everything that still waits, so that nothing runs when the garbage is collected."""
        for process in self.processes:
            process.crash()
        self.dying.extend(self._tasks)
        self._reap()

    def _reap(self) -> None:
        while self.dying:
            task = self.dying.pop()
            task.is_parked = False
            if task in self._ready:
                self._ready.remove(task)
            self._tasks.pop(task, None)
            if task.greenlet:  # begun and not ended; what never began just goes
                self.current = task
                task.greenlet.throw(Killed)

    def _time_out(self, task: Task, turn: int) -> None:
        if task.is_parked and task.parks == turn:
            task.is_parked = False
            self._ready.append(task)

    def me(self) -> Task:
        """Return the running task; one of a process that is dead ends here."""
        assert self.current is not None
        if self.current.process is not None and self.current.process.is_dead:
            raise Killed
        return self.current

    def _to_hub(self) -> None:
        me = self.current
        self._hub.switch()
        assert self.current is me
