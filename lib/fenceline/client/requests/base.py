"""What every request of the client shares: the service it goes to, the paths, the bodies.

The rule: a method of those who inherit is one request, answered or raised, as transport.py says; a list is one for each
of its pages. They are split by what API.md splits them by; ``Client`` is all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from fenceline.client.transport import Effect, Param, Transport, body_of
from fenceline.errors import InvalidRequestError
from fenceline.runtime import Runtime

Answer: TypeAlias = Mapping[str, Any]


class Requests:
    """A service, and the way there. ``Client`` sets all of it."""

    runtime: Runtime
    client_name: str | None
    _transport: Transport

    def _call(
        self,
        method: str,
        path: str,
        effect: Effect,
        *,
        params: Mapping[str, Param | None] | None = None,
        body: Mapping[str, Any] | None = None,
        hold_ms: int = 0,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> dict[str, Any]:
        return body_of(
            self._transport.request(
                method,
                path,
                effect=effect,
                params=params,
                body=body,
                hold_ms=hold_ms,
                retry_ms=retry_ms,
                timeout_ms=timeout_ms,
            )
        )

    def _pages(
        self, path: str, last_of: Callable[[Answer], str], params: Mapping[str, Param | None] | None = None
    ) -> Iterator[Answer]:
        """Yield a list page by page, each but the first from behind what ``last_of`` names of the page before it."""
        start_after: str | None = None
        while True:
            asked = {**(params or {}), "start_after": start_after}
            page = self._call("GET", path, "none", params=asked)
            yield page
            if not page.get("has_more"):  # an older service gives some lists whole
                return
            start_after = last_of(page)


def topic_path(topic: str, partition: int | None = None) -> str:
    path = f"/v1/topics/{part(topic)}"
    return path if partition is None else f"{path}/partitions/{partition}"


def part(name: str) -> str:
    """Return ``name`` as one part of a path.

    Raises:
        InvalidRequestError: It would not be one: a path that holds it leads elsewhere.
    """
    if name in ("", ".", ".."):
        raise InvalidRequestError(f"nothing has this name; give another: name={name!r}")
    return quote(name, safe="")


def given(**members: Any) -> dict[str, Any]:
    """Return the members that are not ``None``: the others are left out of a body."""
    return {name: value for name, value in members.items() if value is not None}
