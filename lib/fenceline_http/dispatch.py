"""From an event to the response of the route's handler.

Rule: a request is an argument, and nothing of it is kept between calls, so that many threads may share a process. The
local server has many threads, because only appends that wait together are grouped. An error that is not documented goes
through to the caller, because Lambda reports it.

Not here: what a function reports of its requests (`functions.telemetry`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from fenceline.errors import FencelineError, MethodNotAllowedError, NotFoundError
from fenceline_http import responses
from fenceline_http.request import Event, Request, event_ms, match
from fenceline_http.responses import Response
from fenceline_http.route import Function, Route

if TYPE_CHECKING:
    from fenceline_http.request_schema import Body, Query
    from fenceline_http.wiring import Service

Handler = Callable[..., Response]


def respond(function: Function | None, event: Event, service: Service) -> Response:
    """Return the response of one of a function's routes to ``event``. Safe to call from many threads at once.

    Args:
        function: With ``None``, all functions' routes are served, as behind a gateway.

    Raises:
        Exception: Whatever a handler raised that is no `FencelineError`.
    """
    now_ms = event_ms(event)
    if now_ms:
        service.log.note_event(now_ms)  # before anything that was remembered is used (I4, I7)
    request = Request(event, service)
    try:
        response = _respond(function, request)
    except FencelineError as error:
        response = responses.problem(error)
    response.operation = request.operation
    return response if event.get("isRaw") else response.fitting()


def _respond(function: Function | None, request: Request) -> Response:
    method, path = request.method, request.path
    # RFC 9110: HEAD is GET without the answer's body, which the gateway and the local server leave out.
    served = "GET" if method == "HEAD" else method
    for route in _routes(function).get((served, path.count("/")), ()):
        parameters = match(route.segments, path)
        if parameters is not None:
            request.parameters, request.operation = parameters, route.operation
            return _call(route, request)
    return _no_route(method, path)


@cache
def _routes(function: Function | None) -> Mapping[tuple[str, int], Sequence[Route]]:
    """Return a function's routes, or those of all, by the method and by the number of slashes in the path."""
    declared_in = "routes" if function is None else f"operations.{function}"
    found: dict[tuple[str, int], list[Route]] = {}
    for route in import_module(f"{__package__}.{declared_in}").ROUTES:
        found.setdefault((route.method, route.path.count("/")), []).append(route)
    return found


@cache
def handler_of(route: Route) -> Handler:
    """Return the function that answers a route's requests."""
    handlers = import_module(f"{__package__}.handlers.{route.function}")
    handler: Handler = getattr(handlers, route.handler)
    return handler


def _call(route: Route, request: Request) -> Response:
    """Parse a request as its route declares it, and answer it."""
    takes: type[Body | Query] = route.takes
    if route.takes_batch:
        request.check_batch()
    elif route.batches is not None and request.is_batch:
        takes = route.batches
    bare = None if request.query else takes.bare
    wanted = takes.of(request) if bare is None else bare
    return handler_of(route)(request, wanted) if takes.members else handler_of(route)(request)


def _no_route(method: str, path: str) -> Response:
    from fenceline_http.routes import ROUTES  # The declarations of all functions: no route of this one needs them.

    allowed = [route.method for route in ROUTES if match(route.segments, path) is not None]
    if not allowed:
        way_out = "" if path.startswith("/v1/") else "; each begins with /v1/, so look at the path in the service's URL"
        return responses.problem(NotFoundError(f"no such path{way_out}: path={path}"))
    response = responses.problem(MethodNotAllowedError(f"this path takes {', '.join(allowed)}: method={method}"))
    response.headers["allow"] = ", ".join(allowed)
    return response
