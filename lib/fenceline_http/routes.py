"""Every path that is served, with its methods and the function that serves it.

The rule: each route stands here once. The functions register exactly these (a test compares), the resolver tells an
unknown path from a known one with another method by them, and the local server sends each request where the gateway
would. Paths are written as in API.md and OpenAPI.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Function = Literal["produce", "read", "admin", "subscriptions", "sessions"]

_PARTITION = "/v1/topics/{topic}/partitions/{partition}"
_SUBSCRIPTION = "/v1/topics/{topic}/subscriptions/{name}"


@dataclass(frozen=True, slots=True)
class Route:
    """One method on one path, and who serves it."""

    method: str
    path: str
    function: Function


ROUTES = (
    Route("POST", "/v1/topics", "admin"),
    Route("GET", "/v1/topics", "admin"),
    Route("GET", "/v1/topics/{topic}", "admin"),
    Route("PATCH", "/v1/topics/{topic}", "admin"),
    Route("DELETE", "/v1/topics/{topic}", "admin"),
    Route("POST", f"{_PARTITION}/records", "produce"),
    Route("POST", "/v1/produce", "produce"),
    Route("POST", "/v1/topics/{topic}/records", "produce"),
    Route("GET", f"{_PARTITION}/records", "read"),
    Route("GET", f"{_PARTITION}/offsets", "read"),
    Route("GET", "/v1/topics/{topic}/offsets", "read"),
    Route("GET", f"{_PARTITION}/segments", "read"),
    Route("POST", f"{_PARTITION}/trim", "admin"),
    Route("POST", f"{_PARTITION}/compact", "admin"),
    Route("POST", "/v1/producer-ids", "admin"),
    Route("GET", "/v1/topics/{topic}/subscriptions", "subscriptions"),
    Route("PUT", _SUBSCRIPTION, "subscriptions"),
    Route("GET", _SUBSCRIPTION, "subscriptions"),
    Route("DELETE", _SUBSCRIPTION, "subscriptions"),
    Route("GET", f"{_SUBSCRIPTION}/records", "subscriptions"),
    Route("POST", f"{_SUBSCRIPTION}/acknowledgements", "subscriptions"),
    Route("POST", f"{_SUBSCRIPTION}/seek", "subscriptions"),
    Route("GET", "/v1/groups/{group}/offsets", "subscriptions"),
    Route("POST", "/v1/groups/{group}/offsets", "subscriptions"),
    Route("POST", "/v1/sessions", "sessions"),
    Route("GET", "/v1/sessions/{session_id}", "sessions"),
    Route("POST", "/v1/sessions/{session_id}/heartbeat", "sessions"),
    Route("DELETE", "/v1/sessions/{session_id}", "sessions"),
    Route("POST", "/v1/topics/{topic}/producers", "sessions"),
    Route("GET", "/v1/topics/{topic}/producers", "sessions"),
    Route("GET", "/v1/topics/{topic}/producers/{producer_name}", "sessions"),
    Route("DELETE", "/v1/topics/{topic}/producers/{producer_name}", "sessions"),
    Route("POST", "/v1/own", "sessions"),
    Route("POST", "/v1/own/release", "sessions"),
    Route("GET", "/v1/own", "sessions"),
    Route("GET", "/v1/health", "admin"),
    Route("GET", "/v1/openapi.json", "admin"),
    Route("GET", "/", "admin"),
    Route("GET", "/docs", "admin"),
)


def pattern(path: str) -> re.Pattern[str]:
    """Return what matches ``path``, each ``{parameter}`` being any one segment, legal or not.

    An illegal topic name is an unknown topic, not an unknown path (API.md, "Form of requests").
    """
    literal = re.escape(path).replace(r"\{", "{").replace(r"\}", "}")
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", literal) + r"\Z")


_PATTERNS = tuple((route, pattern(route.path)) for route in ROUTES)


def methods_of(path: str) -> list[str]:
    """Return the methods that this path takes; none if there is no such path."""
    return [route.method for route, matches in _PATTERNS if matches.match(path)]


def function_of(method: str, path: str) -> Function:
    """Return who serves the request; ``admin``, the gateway's default, where nobody does."""
    for route, matches in _PATTERNS:
        if route.method == method and matches.match(path):
            return route.function
    return "admin"
