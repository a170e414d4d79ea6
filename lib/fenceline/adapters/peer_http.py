"""Another region over HTTP: its topics, segments and bodies (contract, "Read" and "Topics").

Rule: an answer is believed only if each of its members has the promised type and bounds, and if it names the configured
region. Otherwise the call ends with ``PeerProblem``, and nothing of the answer is used. A call ends in bounded time,
reads a bounded number of bytes, and follows no redirect. Segments are fetched only from the peer's own host and the
configured places, because otherwise a peer could let this region ask any host that it reaches.

Rule: a peer that let a call wait in vain is not called for 1 s, doubled each time up to 30 s. Then one call tries it.
Meanwhile each other call fails at once, so that threads are free for other peers. Only a call of ``within`` is made in
any case.

Not here: how members become values (``peer_answers``), connections (``http_connections``), and signatures
(``adapters.aws.peer_signing``).
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlencode, urlsplit

from fenceline import limits
from fenceline.adapters import peer_answers
from fenceline.adapters.http_connections import CannotReach, Carrier, Connections
from fenceline.answers import Refused
from fenceline.backoff import PEER_BACKOFF
from fenceline.model.results import SegmentList
from fenceline.ports import Unavailable
from fenceline.regions.peer import BeyondEnd, PeerProblem, PeerTopic

CONNECT_MS = 2_000
ANSWER_MS = 10_000  # for the whole of an answer
_SHOWN_PEER_TEXT_CHARS_MAX = 200
_HEADERS: Mapping[str, str] = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "fenceline"}

Signer: TypeAlias = Callable[[str], Mapping[str, str]]
"""A function that returns the headers that sign a GET of a URL, or raises ``CannotReach``."""


class HttpPeer:
    """Another region at a URL. Safe to share between threads.

    Args:
        name: The name that the region must give itself.
        places: Returns the beginnings of segments' URLs that are allowed in addition to the service's own scheme, host
            and port. It is called where a URL leads elsewhere.
        sign: The signer of requests to the service. Bodies are fetched by URLs that need no signature.
        carrier: The carrier of the requests, for tests; ``None`` is the network.
        answer_ms: How long an answer may take as a whole.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        places: Callable[[], Sequence[str]] = tuple,
        sign: Signer | None = None,
        carrier: Carrier | None = None,
        answer_ms: int = ANSWER_MS,
    ) -> None:
        self._name = name
        self._url = url.rstrip("/")
        self._own = _split(self._url)._replace(path="/")
        self._places = places
        self._sign = sign
        self._answer_ms = answer_ms
        self._silence = _Silence()
        self._is_patient = True
        self._carrier = carrier or Connections()

    @property
    def name(self) -> str:
        return self._name

    def within(self, answer_ms: int) -> HttpPeer:
        """Return the same peer, which shares its connections, with calls that take at most ``answer_ms``."""
        hurried = copy.copy(self)
        hurried._answer_ms = answer_ms
        hurried._is_patient = False
        return hurried

    def close(self) -> None:
        self._carrier.close()

    def topic(self, name: str) -> PeerTopic | None:
        answer = self._json(f"/v1/topics/{quote(name, safe='')}", {})
        return None if answer is None else self._parsed(peer_answers.topic, answer)

    def segments(
        self, topic: str, partition: int, *, origin: str, offset: int | None, limit: int
    ) -> SegmentList | None:
        asked: dict[str, str | int] = {"origin": origin, "limit": limit}
        if offset is not None:
            asked["offset"] = offset
        answer = self._json(f"/v1/topics/{quote(topic, safe='')}/partitions/{partition}/segments", asked)
        if answer is None:
            return None
        said = answer.get("region")
        if said is None:
            raise self._problem("its answer names no region; run the same version there")
        if said != self._name:
            raise self._problem(f"it says that it is another region: {_shown(said)}")
        found: SegmentList = self._parsed(peer_answers.segments, answer)
        if len(found.segments) > limit:
            raise self._problem(f"it answered more segments than asked for: segments={len(found.segments)}")
        return found

    def body(self, url: str, size: int) -> bytes:
        self._check_place(url)
        status, content = self._get(url, bytes_max=size)
        if status != 200:
            raise self._problem(f"it gave no segment: status={status}")
        if len(content) != size:
            raise self._problem(f"it sent a segment of another size: bytes={len(content)} announced={size}")
        return content

    def _check_place(self, url: str) -> None:
        """Check that a segment may be fetched by ``url``.

        Raises:
            PeerProblem: The URL leads elsewhere than to the peer's host and the configured places.
        """
        try:
            place = _split(url)
        except ValueError:
            place = None
        if place is None or place.scheme not in ("https", self._own.scheme):
            raise self._problem(f"a segment's URL has another scheme than the service: url={_shown(url)}")
        if place.is_within(self._own):
            return
        try:
            known = [_split(one) for one in self._places()]
        except Unavailable as error:
            raise self._problem(f"where its bucket is cannot be found out: reason={_shown(error)}") from error
        if not any(map(place.is_within, known)):
            raise self._problem(
                "a segment's URL leads neither to its host nor to a configured bucket;"
                f" name the bucket, if its segments are there: url={_shown(url.partition('?')[0])}"
            )

    def _json(self, path: str, params: Mapping[str, str | int]) -> dict[str, Any] | None:
        """Return the service's answer; ``None`` if it has no such topic or partition."""
        url = f"{self._url}{path}?{urlencode(params)}" if params else self._url + path
        status, content = self._get(url, bytes_max=limits.GATEWAY_BYTES_MAX, sign=self._sign)
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._problem(f"it answered no JSON object: status={status}")
        if status == 200:
            return answer
        if status == 404 and answer.get("code") == "UNKNOWN_TOPIC_OR_PARTITION":
            return None
        refusal = f"it refused: status={status} code={_shown(answer.get('code'))} detail={_shown(answer.get('detail'))}"
        if status == 416 and answer.get("code") == "OFFSET_OUT_OF_RANGE":
            raise BeyondEnd(str(self._problem(refusal)))
        raise self._problem(refusal)

    def _get(self, url: str, *, bytes_max: int, sign: Signer | None = None) -> tuple[int, bytes]:
        now = time.monotonic()
        is_trial = False
        if self._is_patient:
            silence, is_trial = self._silence.at(now, self._answer_ms)
            if silence is not None:
                raise PeerProblem(silence)
        try:
            found = self._read(url, bytes_max, sign, now + self._answer_ms / 1000)
        except TimeoutError as error:
            problem = self._problem(f"it did not answer in time: ms={self._answer_ms}")
            self._silence.note(str(problem), time.monotonic(), is_trial=is_trial)
            raise problem from error
        except (CannotReach, PeerProblem) as error:
            if is_trial:  # whatever the peer answered, it did not let the call wait
                self._silence.end()
            if isinstance(error, PeerProblem):
                raise
            raise self._problem(f"it cannot be reached: reason={_shown(error)}") from error
        self._silence.end()
        return found

    def _read(self, url: str, bytes_max: int, sign: Signer | None, until: float) -> tuple[int, bytes]:
        """Return an answer's status and bytes, unless they are more than ``bytes_max``, or packed.

        Raises:
            TimeoutError: The peer let the call wait in vain.
            CannotReach: There is no answer.
            PeerProblem: The answer cannot be used.
        """
        headers = _HEADERS if sign is None else {**_HEADERS, **sign(url)}
        connect_ms = min(CONNECT_MS, self._answer_ms)
        with self._carrier.get(url, headers, connect_ms=connect_ms, until=until) as answer:
            if (answer.header("content-encoding") or "identity") != "identity":
                raise self._problem("it packed an answer, which it was not asked for")
            if answer.status != 200:
                bytes_max = limits.GATEWAY_BYTES_MAX  # it says why
            content = bytearray()
            for piece in answer.pieces():
                content += piece
                if len(content) > bytes_max:
                    raise self._problem(f"it sent more than {bytes_max} bytes: status={answer.status}")
            return answer.status, bytes(content)

    def _parsed(self, parse: Any, answer: Mapping[str, Any]) -> Any:
        try:
            return parse(answer)
        except Refused as error:
            raise self._problem(f"its answer cannot be used: {error}") from error

    def _problem(self, what: str) -> PeerProblem:
        return PeerProblem(f"the peer {self._name}: {what}")


class _Place(NamedTuple):
    """The place to which a URL leads."""

    scheme: str
    host: str
    port: int
    path: str

    def is_within(self, known: _Place) -> bool:
        """Return True if this is a place whose URL begins with that of ``known``, up to a slash."""
        within = known.path.rstrip("/") + "/"
        return self[:3] == known[:3] and self.path.startswith(within) and ".." not in unquote(self.path).split("/")


def _split(url: str) -> _Place:
    """Return the place to which a URL leads.

    Raises:
        ValueError: The URL cannot be read.
    """
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    return _Place(parts.scheme, parts.hostname or "", port, parts.path or "/")


class _Silence:
    """The pause of calls to a peer that let calls wait in vain. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._problem = ""
        self._times = 0
        self._until = 0.0

    def at(self, now: float, trial_ms: int) -> tuple[str | None, bool]:
        """Return why the peer is not called now (``None`` if it is), and whether this call tries it for all others.

        Args:
            trial_ms: How long the trying call may take, during which no other one tries.
        """
        if not self._times:
            return None, False
        with self._lock:
            if now < self._until:
                return self._problem, False
            self._until = now + trial_ms / 1000
            return None, True

    def note(self, problem: str, now: float, *, is_trial: bool) -> None:
        """Note a call that waited in vain. Of calls side by side, the first one counts."""
        with self._lock:
            if is_trial or not self._times:
                self._problem, self._times = problem, self._times + 1
                self._until = now + PEER_BACKOFF.pause_ms(self._times) / 1000

    def end(self) -> None:
        """Note an answer."""
        if self._times:
            with self._lock:
                self._times, self._until = 0, 0.0


def _shown(value: object) -> str:
    """Return a value that a peer sent, in one line of bounded length."""
    text = " ".join(str(value)[: 2 * _SHOWN_PEER_TEXT_CHARS_MAX].split())
    return text if len(text) <= _SHOWN_PEER_TEXT_CHARS_MAX else text[:_SHOWN_PEER_TEXT_CHARS_MAX] + "…"
