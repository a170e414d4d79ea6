"""The base of every request of the client: the service that it goes to, paths and bodies.

Rule: each method of a class that inherits from ``Requests`` is one request, returned or raised as transport.py says; a
list is one request for each of its pages. The classes are split as the contract is. ``ApiClient`` is all of them.
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
    """A service, and the way to it. ``ApiClient`` sets all attributes."""

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
        within_ms: int | None = None,
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
                within_ms=within_ms,
            )
        )

    def _listed(
        self,
        path: str,
        name: str,
        last: str,
        params: Mapping[str, Param | None] | None = None,
        *,
        start_after: str | None = None,
    ) -> Iterator[Answer]:
        """Yield the entries of a list that may stop early: it is in the member ``name``, and goes on by ``last``."""

        def last_of(page: Answer) -> str:
            # A page may have few entries, or none, because the service looks at a bounded number at once.
            return str(page.get("go_on_after") or page[name][-1][last])

        for page in self._pages(path, last_of, params, start_after=start_after):
            yield from page[name]

    def _pages(
        self,
        path: str,
        last_of: Callable[[Answer], str],
        params: Mapping[str, Param | None] | None = None,
        *,
        start_after: str | None = None,
    ) -> Iterator[Answer]:
        """Yield a list page by page. Each but the first begins after the name that ``last_of`` finds in the last."""
        while True:
            asked = {**(params or {}), "start_after": start_after}
            page = self._call("GET", path, "none", params=asked)
            yield page
            if not page.get("has_more"):  # absent where an older service returns the whole list
                return
            start_after = last_of(page)


def topic_path(topic: str, partition: int | None = None) -> str:
    path = f"/v1/topics/{part(topic)}"
    return path if partition is None else f"{path}/partitions/{partition}"


def part(name: str) -> str:
    """Return ``name`` as one part of a path.

    Raises:
        InvalidRequestError: The name is empty or made of dots: a path with it leads elsewhere.
    """
    if name in ("", ".", ".."):
        raise InvalidRequestError(f"nothing can have this name; give another: name={name!r}")
    return quote(name, safe="")


def given(**members: Any) -> dict[str, Any]:
    """Return the members that are not ``None``; a body leaves the others out."""
    return {name: value for name, value in members.items() if value is not None}
