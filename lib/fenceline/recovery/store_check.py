"""Store check: tests whether an object store has the properties on which the log depends.

Rule: a server checks its store before it serves, because a store that lets two creates of one key win loses
acknowledged records, and nothing can find that out later. The check races, because some look-alikes of S3 refuse a
second create in turn and let several win in a race. All of its objects are below ``probe/``, under a name of its own,
and it deletes them at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from fenceline.format.keys import PROBE_PREFIX
from fenceline.ports import AlreadyExists, Conflict, NoAnswer, NotFound, Object, ObjectStore

BODY_BYTES = (100, 300_000)  # a large body widens the gap between a look-alike's look and its write
WAIT_S = 120

ONE_WINS = "one of several creates at once wins"


@dataclass(frozen=True, slots=True)
class Finding:
    """One property, and the observation if it did not hold."""

    what: str
    broken: str = ""  # what was seen instead

    @property
    def holds(self) -> bool:
        return not self.broken


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings of one check."""

    findings: Sequence[Finding]

    @property
    def is_sound(self) -> bool:
        return all(finding.holds for finding in self.findings)

    def __str__(self) -> str:
        broken = [f"{finding.what}: {finding.broken}" for finding in self.findings if not finding.holds]
        if not broken:
            return "the object store keeps what the log depends on"
        return f"the object store can't hold a log; use another: {'; '.join(broken)}"


def probe(objects: ObjectStore, name: str, *, rounds: int = 4, racers: int = 8) -> CheckReport:
    """Race ``racers`` threads to create one key, in each round a fresh one.

    Args:
        name: Never used before in this store: ``Runtime.fresh_id``.

    Raises:
        Unavailable: The store could not be asked.
    """
    return _reported(objects, name, [(ONE_WINS, lambda prefix: _race(objects, prefix, rounds, racers))])


def examine(objects: ObjectStore, name: str, *, rounds: int = 50, racers: int = 8) -> CheckReport:
    """Check every property on which the protocol depends, and race as ``probe`` does, for longer.

    Args:
        name: Never used before in this store: ``Runtime.fresh_id``.

    Raises:
        Unavailable: The store could not be asked.
    """
    looks: list[_Look] = [
        ("what was created is read, whole, in ranges, and with its metadata", partial(_read, objects)),
        ("a second create is refused, and changes nothing", partial(_refuse, objects)),
        ("what was created is listed at once, in the order of the keys, from any key on", partial(_list, objects)),
        ("what was deleted is gone at once, and its key free", partial(_delete, objects)),
        (ONE_WINS, lambda prefix: _race(objects, prefix, rounds, racers)),
    ]
    return _reported(objects, name, looks)


class _Broken(Exception):
    """A property that does not hold. The message says what the store did instead."""


_Look = tuple[str, Callable[[str], None]]


def _reported(objects: ObjectStore, name: str, looks: Sequence[_Look]) -> CheckReport:
    prefix = f"{PROBE_PREFIX}{name}/"
    findings = []
    try:
        for number, (what, look) in enumerate(looks):
            try:
                look(f"{prefix}{number}/")
            except _Broken as broken:
                findings.append(Finding(what, str(broken)))
            else:
                findings.append(Finding(what))
    finally:
        for found in objects.list(prefix, limit=1_000_000):
            objects.delete(found.key)
    return CheckReport(findings)


def _read(objects: ObjectStore, prefix: str) -> None:
    key, body = f"{prefix}k", bytes(range(256)) * 40
    metadata = {"write-id": "0123456789abcdef" * 2, "chain": "f" * 64, "number": "9007199254740993"}
    _absent(objects, key)
    _create(objects, key, body, metadata)
    for start, end in ((0, None), (0, 61), (5_000, 5_100), (10_000, None), (10_000, 99_999)):
        found = objects.get(key, start, end)
        _expect(found.body == body[start:end], f"bytes from {start} to {end} are not those that were stored")
        _expect(found.size == len(body), f"a read gives the size {found.size} instead of {len(body)}")
        for member, value in metadata.items():
            seen = found.metadata.get(member)
            _expect(seen == value, f"metadata came back changed: {member}={value} became {seen}")


def _refuse(objects: ObjectStore, prefix: str) -> None:
    key = f"{prefix}k"
    _create(objects, key, b"first", {"write-id": "1"})
    try:
        objects.create(key, b"second", {"write-id": "2"})
    except (AlreadyExists, Conflict):
        found = objects.get(key)
        _expect((found.body, found.metadata.get("write-id")) == (b"first", "1"), "a refused create changed the object")
        return
    raise _Broken("a second create was answered as if it had succeeded")


def _list(objects: ObjectStore, prefix: str) -> None:
    keys = [f"{prefix}{number:020d}.log" for number in range(1, 13)]
    for number in (7, 2, 11, 0, 5, 10, 3, 8, 1, 9, 4, 6):
        _create(objects, keys[number], b"x" * number, {})
        seen = {summary.key: summary for summary in objects.list(prefix)}
        _expect(keys[number] in seen, "a listing lacks what had just been created")
        _expect(seen[keys[number]].size == number, "a listing gives a wrong size")
    for start_after, limit in (("", 1_000), (keys[3], 4), (f"{keys[3]}~", 4), (keys[10], 4), (keys[11], 4), ("", 5)):
        expected = [key for key in keys if key > start_after][:limit]
        listed = [summary.key for summary in objects.list(prefix, start_after, limit)]
        _expect(listed == expected, f"a listing is not what comes after {start_after!r}, in order: {listed}")
    age = objects.list(prefix, limit=1)[0].modified_at - objects.get(keys[0]).modified_at
    _expect(abs(age) <= 1_000, "a listing and a read give different times of creation")


def _delete(objects: ObjectStore, prefix: str) -> None:
    key = f"{prefix}k"
    for body in (b"first", b"second"):
        _create(objects, key, body, {"write-id": body.decode()})
        found = objects.get(key)
        seen = (found.body, found.metadata.get("write-id"))
        _expect(seen == (body, body.decode()), "a read returned an object that was deleted before this one was created")
        objects.delete(key)
        _absent(objects, key)
        _expect(not objects.list(prefix), "a listing shows what was deleted")
    objects.delete(key)


def _create(objects: ObjectStore, key: str, body: bytes, metadata: dict[str, str]) -> None:
    try:
        objects.create(key, body, metadata)
    except (AlreadyExists, Conflict) as fact:
        raise _Broken(f"a create of an absent key was refused: {fact}") from fact
    except NoAnswer as fact:
        raise _Broken(f"a create was not answered; look again when the store is quiet: {fact}") from fact


def _absent(objects: ObjectStore, key: str) -> None:
    try:
        objects.get(key)
    except NotFound:
        return
    raise _Broken("a read found what is absent")


def _expect(holds: bool, broken: str) -> None:
    if not holds:
        raise _Broken(broken)


# One racer's answer; "refused" comes with the object that was at the key right after.
_WON, _REFUSED, _CONFLICT, _UNKNOWN = "won", "refused", "conflict", "unknown"


def _race(objects: ObjectStore, prefix: str, rounds: int, racers: int) -> None:
    barrier = threading.Barrier(racers)
    unanswered: list[NoAnswer] = []

    def run(racer: int) -> list[tuple[str, Object | None]]:
        answers = []
        try:
            for turn in range(rounds):
                barrier.wait(WAIT_S)
                try:
                    answers.append(_try(objects, f"{prefix}{turn:06d}", racer, BODY_BYTES[turn % len(BODY_BYTES)]))
                except NoAnswer as fact:
                    answers.append((_UNKNOWN, None))
                    unanswered.append(fact)
        except BaseException:
            barrier.abort()
            raise
        return answers

    with ThreadPoolExecutor(racers, "probe") as pool:
        futures = [pool.submit(run, racer) for racer in range(racers)]
    failures = [error for error in (future.exception() for future in futures) if error is not None]
    for error in failures:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    turns = list(zip(*(future.result() for future in futures), strict=True))
    if len(unanswered) == rounds * racers:
        raise _Broken(f"no create was answered: {unanswered[-1]}") from unanswered[-1]
    for turn, answers in enumerate(turns):
        _judge(objects, f"{prefix}{turn:06d}", answers, BODY_BYTES[turn % len(BODY_BYTES)])


def _try(objects: ObjectStore, key: str, racer: int, size: int) -> tuple[str, Object | None]:
    try:
        objects.create(key, bytes([racer]) * size, {"write-id": str(racer)})
    except AlreadyExists:
        try:
            return _REFUSED, objects.get(key)
        except NotFound:
            return _REFUSED, None
    except Conflict:
        return _CONFLICT, None
    return _WON, None


def _judge(objects: ObjectStore, key: str, answers: Sequence[tuple[str, Object | None]], size: int) -> None:
    won = [racer for racer, (what, _) in enumerate(answers) if what == _WON]
    _expect(len(won) <= 1, f"{len(won)} of {len(answers)} creates of one key were answered as if they had succeeded")
    refused = [seen for what, seen in answers if what == _REFUSED]
    _expect(None not in refused, "a create was refused because of an object, and a read right after did not find it")
    may_win = won or [racer for racer, (what, _) in enumerate(answers) if what == _UNKNOWN]
    if not may_win:
        _expect(not refused, "every create of an absent key was refused")
        return  # each found another create under way, which S3 may answer
    for found in _seen(objects, key, refused, is_certain=bool(won)):
        racer = int(found.metadata.get("write-id", "-1"))
        _expect(racer in may_win, "the object at the key is not the winner's")
        _expect(found.body == bytes([racer]) * size, "the object at the key is a mixture")


def _seen(objects: ObjectStore, key: str, refused: Sequence[Object | None], *, is_certain: bool) -> Iterator[Object]:
    yield from (found for found in refused if found is not None)
    try:
        yield objects.get(key)
    except NotFound:
        _expect(not is_certain, "a create was answered as if it had succeeded, and no object is at its key")
