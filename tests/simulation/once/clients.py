"""Drivers of one application in a simulation, with their tasks, and their zombies.

Rule: a driver does as Spark's sink does: it ends a batch by one request with `once`, and writes into its checkpoint
only after the answer. Several drivers share an application and its checkpoint. Each driver dies now and then, while its
tasks go on.

Not here: clients that end several transactions without `once` (``once/others.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from fenceline.errors import AlreadyCommittedError, FencelineError, ProducerFencedError
from fenceline.model.transaction import TransactionMember as Member
from tests.simulation.harness.world import NoReply
from tests.simulation.once.requests import Closing, Extending, Once
from tests.simulation.transactions.clients import ENDS_MAX, TRIES_MAX, Instance, Lost
from tests.simulation.transactions.clients import Stage as TransactionStage
from tests.simulation.transactions.requests import Batch, Ending, Transaction

TASK_ATTEMPTS_MAX = 3
AGAIN_MAX = 5  # times that a driver asks for its id anew, because another one has asked for it
TASKS_MAX = 4

Part = tuple[int, int]  # a partition, and how many rows of a task go there


class Failed(Exception):
    """A driver's run is over: it died, or was refused. Another run begins from the checkpoint."""


@dataclass
class Stage(TransactionStage):
    """A field, and what its drivers share."""

    seed: int = 0
    commit_timeout_ms: int = 60_000  # how long a finished task's transaction waits for its driver
    death: float = 0  # how often a driver dies, at each place where it may
    shares_ids: bool = True  # as Spark's runs do: then each fences the ones before it
    forgets: bool = False  # versions are deleted amid everything
    logged: dict[str, int] = field(default_factory=dict)  # the last batch in each application's checkpoint
    seen: list[Once] = field(default_factory=list)  # what drivers took for committed

    def cut(self, app: str, version: int) -> Sequence[Sequence[Part]]:
        """Return the tasks of a batch: every run cuts it alike."""
        rng = Random(f"{self.seed} {app} {version}")
        tasks = rng.choice((0, 1, 1, 2, 2, TASKS_MAX))
        partitions = range(self.partitions)
        return [
            [(p, rng.choice((1, 1, 2))) for p in partitions if rng.random() < 0.6] or [(0, 1)] for _ in range(tasks)
        ]

    def log(self, app: str, version: int) -> None:
        self.logged[app] = max(version, self.logged.get(app, -1))


@dataclass(frozen=True)
class Inline:
    """The rows of a task that its driver writes."""

    index: int
    parts: Sequence[Part]


@dataclass(frozen=True)
class Large:
    """A task's own transaction, which waits for its driver."""

    instance: Instance
    transaction: Transaction

    @property
    def member(self) -> Member:
        return Member(self.transaction.transactional_id, self.transaction.pair)


@dataclass(frozen=True)
class Repeat:
    """A task found that its batch was committed before."""


Made = Inline | Large | Repeat


class Parallel:
    """Tasks outside the processes that a client began. They outlive what it does."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._going = 0

    def begin(self, name: str, act: Callable[[], object]) -> None:
        me = self._stage.world.me()
        self._going += 1

        def run() -> None:
            with suppress(FencelineError, NoReply, Lost, Failed):
                act()
            self._going -= 1
            self._stage.world.wake(me)

        self._stage.world.spawn(name, run)

    def wait(self) -> None:
        while self._going:
            self._stage.world.park(1_000)


def extend(instance: Instance, timeout_ms: int) -> None:
    """Ask for more time, until it is answered.

    Raises:
        Lost: It was refused, or no try was answered.
    """
    assert instance.pair is not None
    extending = Extending(instance.transactional_id, instance.pair, timeout_ms)
    instance._call("extend", extending, extending.made)


def look(stage: Stage, name: str, app: str) -> int:
    """Return the version of an application.

    Raises:
        Lost: No try was answered.
    """
    for _ in range(TRIES_MAX):
        with suppress(FencelineError, NoReply):
            return int(stage.call(name, "once", app, lambda log: log.transactions.once(app)).version)
        stage.world.sleep(stage.rng.random() * 500)
    raise Lost


def drive(stage: Stage, name: str, app: str) -> None:
    """Run batches, one driver's life after another, each from the checkpoint on."""
    lives = []
    for _ in range(stage.rounds):
        lives.append(Parallel(stage))
        with suppress(Failed, Lost):
            Query(stage, name, app, stage.fresh(f"{name}#"), lives[-1]).run()
        stage.world.sleep(stage.rng.random() * stage.rng.choice((50, 3_000)))
    for parallel in lives:
        parallel.wait()


@dataclass
class Query:
    """One life of a driver."""

    stage: Stage
    client: str
    app: str
    run_id: str
    parallel: Parallel
    main: Instance | None = None  # for the rows that the driver writes itself

    @property
    def prefix(self) -> str:
        return self.app if self.stage.shares_ids else f"{self.app}.{self.client}"

    def run(self) -> None:
        version = self.stage.logged.get(self.app, -1) + 1
        for _ in range(self.stage.rng.choice((1, 2, 3))):
            self._batch(version)
            self.stage.log(self.app, version)
            version += 1
            self._may_die()

    def _may_die(self) -> None:
        if self.stage.rng.random() < self.stage.death:
            raise Failed
        if self.stage.rng.random() < 0.2:
            self.stage.world.sleep(self.stage.rng.random() * 2 * max(self.stage.timeouts_ms))

    def _batch(self, version: int) -> None:
        made = self._tasks(version)
        repeats = [one for one in made if isinstance(one, Repeat)]
        # Some may be repeats: another run was faster meanwhile. Without deletions the end says so, too.
        if repeats and (self.stage.forgets or len(repeats) == len(made)):
            return
        self._may_die()
        large = [one for one in made if isinstance(one, Large)]
        rows = [one for one in made if isinstance(one, Inline)]
        for _ in range(1 + AGAIN_MAX):
            members = [*large]
            if rows or self.stage.rng.random() < 0.2:
                members.append(self._inline(version, rows))
            self._may_die()
            if self._commit(members, Once(self.app, version, self.run_id)):
                break
        else:
            raise Failed
        self._fence_others(made)

    # Tasks

    def _tasks(self, version: int) -> Sequence[Made]:
        tasks = self.stage.cut(self.app, version)
        made: list[Made | None] = [None] * len(tasks)
        parallel = Parallel(self.stage)

        def work(index: int) -> None:
            made[index] = self._task(version, index, tasks[index])

        for index in range(len(tasks)):
            parallel.begin(f"{self.client}.{index}", partial(work, index))
        parallel.wait()
        if None in made:
            raise Failed
        return [one for one in made if one is not None]

    def _task(self, version: int, index: int, parts: Sequence[Part]) -> Made:
        rng, is_large = self.stage.rng, self.stage.rng.random() < 0.6
        for attempt in range(TASK_ATTEMPTS_MAX):
            if is_large and rng.random() < 0.15:
                copy = partial(self._attempt, version, index, attempt + TASK_ATTEMPTS_MAX, parts, rng.random() * 5_000)
                self.parallel.begin(f"{self.client}.{index}.copy", copy)
            with suppress(Lost):
                if is_large:
                    return self._attempt(version, index, attempt, parts)
                self._look(version)
                return Inline(index, parts)
        raise Lost

    def _look(self, version: int) -> bool:
        """Return True if the batch was committed before.

        Raises:
            Failed: A later one was.
        """
        found = look(self.stage, self.client, self.app)
        if found > version:
            raise Failed
        return found == version

    def _attempt(
        self, version: int, index: int, attempt: int, parts: Sequence[Part], pause_ms: float = 0
    ) -> Large | Repeat:
        """Write a task's rows in a transaction of their own, and leave it open for the driver."""
        stage, rng = self.stage, self.stage.rng
        stage.world.sleep(pause_ms)
        if self._look(version):
            return Repeat()
        instance = Instance(stage, f"{self.client}.{index}", f"{self.prefix}.{index}.{attempt}")
        instance.begin()
        transaction = instance.start()
        for partition, count in parts:
            instance.send(transaction, Batch(partition, 0, self._values(version, index, partition, count)))
            if rng.random() < 0.2:
                extend(instance, max(stage.timeouts_ms))
            if rng.random() < 0.1:
                stage.world.sleep(rng.random() * max(stage.timeouts_ms))
        if rng.random() < 0.8:
            extend(instance, stage.commit_timeout_ms)
        if rng.random() < 0.1:
            extend(instance, min(stage.timeouts_ms))
        return Large(instance, transaction)

    def _values(self, version: int, index: int, partition: int, count: int) -> tuple[str, ...]:
        unique = self.stage.fresh("row")
        return tuple(f"{self.app}|{version}|{index}|{partition}|{k}|{self.run_id}|{unique}" for k in range(count))

    # The driver

    def _inline(self, version: int, rows: Sequence[Inline]) -> Large:
        """Write the tasks' rows in the driver's own transaction; without rows nothing begins."""
        if self.main is None or self.main.pair is None or self.stage.rng.random() < 0.5:
            self.main = Instance(self.stage, self.client, self.prefix)
            self.main.begin()
        transaction = self.main.start()
        sequences: Counter[int] = Counter()
        for one in rows:
            for partition, count in one.parts:
                values = self._values(version, one.index, partition, count)
                self.main.send(transaction, Batch(partition, sequences[partition], values))
                sequences[partition] += count
        return Large(self.main, transaction)

    def _commit(self, members: Sequence[Large], once: Once) -> bool:
        """Commit them with the version, and ask again until an answer comes.

        Returns:
            False where the driver's own id was asked for by another one: from its pair on again.

        Raises:
            Failed: It was refused, or no try was answered.
        """
        is_single = len(members) == 1 and bool(members[0].transaction.batches) and self.stage.rng.random() < 0.3
        closing = Closing(tuple(one.member for one in members), True, once, is_single)
        try:
            close(self.stage, self.client, self.parallel, members, closing)
        except AlreadyCommittedError as error:
            if error.version != once.version:
                raise Failed from error
            self._abandon(members)
        except ProducerFencedError as error:
            if _blamed(error, closing) == self.prefix:
                self.main = None
                return False
            self._abandon(members)
            raise Failed from error
        except FencelineError as error:
            self._abandon(members)
            raise Failed from error
        self.stage.seen.append(once)
        return True

    def _abandon(self, members: Sequence[Large]) -> None:
        for one in members:
            ending = Ending(one.member.transactional_id, one.member.pair, False)
            with suppress(FencelineError, NoReply):
                if self.stage.rng.random() < 0.7:
                    self.stage.call(self.client, "end", ending, ending.made)
        self.main = None

    def _fence_others(self, made: Sequence[Made]) -> None:
        """Ask for the ids of attempts that are no part of the batch."""
        mine = {one.member.transactional_id for one in made if isinstance(one, Large)}
        for index in range(len(made)):
            for attempt in range(2 * TASK_ATTEMPTS_MAX):
                other = f"{self.prefix}.{index}.{attempt}"
                if other not in mine and self.stage.rng.random() < 0.1:
                    with suppress(Lost):
                        Instance(self.stage, self.client, other).begin()


def _blamed(error: FencelineError, closing: Closing) -> str:
    """Return the member that an error is about; the request that ends one transaction names none."""
    return str(error.extra.get("transactional_id", closing.members[0].transactional_id))


def close(stage: Stage, name: str, parallel: Parallel, members: Sequence[Large], closing: Closing) -> Any:
    """End transactions by one request, again until an answer comes; now and then it is sent twice, once late.

    Raises:
        FencelineError: It was refused.
        Lost: No try was answered.
    """
    rng, world = stage.rng, stage.world
    was_unknown = rng.random() < 0.15
    asked = [one for one in members if not one.transaction.answered]  # each that no other request has ended
    for one in asked:
        one.transaction.asked, one.transaction.is_refused = closing.is_commit, False
    if was_unknown:
        delay_ms = rng.random() * rng.choice((10, 3_000))
        parallel.begin(f"{name}.again", partial(_late, stage, name, closing, delay_ms))
    for _ in range(ENDS_MAX):
        try:
            pairs = stage.call(name, "close", closing, closing.made)
        except FencelineError as error:
            if error.next_step in ("fix", "stop"):
                for one in asked:
                    # A version that is committed says nothing of which request committed it.
                    one.transaction.is_refused = not was_unknown and error.code != "ALREADY_COMMITTED"
                raise
            was_unknown = was_unknown or error.code in ("OUTCOME_UNKNOWN", "CONCURRENT_TRANSACTIONS")
        except NoReply:
            was_unknown = True
        else:
            for one, pair in zip(members, pairs, strict=True):
                one.instance.pair = pair
                if pair != one.transaction.pair:  # otherwise it was passed over
                    one.transaction.answered, one.transaction.ended = True, world.step
            return pairs
        world.sleep(rng.random() * 1_000)
    raise Lost


def _late(stage: Stage, name: str, closing: Closing, delay_ms: float) -> None:
    stage.world.sleep(delay_ms)
    stage.call(name, "close", closing, closing.made)
