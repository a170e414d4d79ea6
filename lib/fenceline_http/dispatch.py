"""Powertools' resolver, for many requests at once in one process.

The rule: what belongs to one request is kept per thread. Powertools keeps it on a class, which is enough for Lambda;
the local server calls the same handlers from many threads, because only appends that wait together are grouped.

Events are those of an HTTP API, payload version 2.0 (the gateway gives ``rawPath`` percent-decoded). One addition: an
event with ``"isRaw": true`` comes from a caller in the same process. Its ``body`` is ``bytes``, and so may be the
answer's, which saves both sides base64.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler.api_gateway import ResponseBuilder
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from aws_lambda_powertools.utilities.data_classes.common import BaseProxyEvent

from fenceline import limits
from fenceline.errors import FencelineError, MessageTooLargeError, MethodNotAllowedError, NotFoundError
from fenceline_http import request as http_request
from fenceline_http import responses, routes, wiring
from fenceline_http.media_types import BATCH_TYPE

Event = Mapping[str, Any]


class Resolver(APIGatewayHttpResolver):
    """Sends an event to the function registered for its route, and turns its errors into problem documents.

    Paths are written ``/v1/topics/{topic}``. An error that is not ours goes through: Lambda reports it.
    """

    def __init__(self) -> None:
        self._request = threading.local()
        super().__init__(debug=False)
        self.exception_handler(FencelineError)(responses.problem)

    @property
    def event(self) -> Event:
        """The event of the request that this thread is working on."""
        return self.current_event.raw_event

    @property
    def current_event(self) -> APIGatewayProxyEventV2:
        event: APIGatewayProxyEventV2 = self._request.event
        return event

    @current_event.setter
    def current_event(self, event: BaseProxyEvent) -> None:
        self._request.event = event

    @property
    def lambda_context(self) -> Any:
        return self._request.lambda_context

    @lambda_context.setter
    def lambda_context(self, context: Any) -> None:
        self._request.lambda_context = context

    @property
    def context(self) -> dict[str, Any]:
        context: dict[str, Any] = self._request.__dict__.setdefault("context", {})
        return context

    @context.setter
    def context(self, context: dict[str, Any]) -> None:
        self._request.context = context

    def resolve(self, event: Event, context: object) -> dict[str, Any]:
        """Answer one event. Safe to call from many threads at once.

        Raises:
            Exception: Whatever a function raised that is no `FencelineError`.
        """
        event_ms = http_request.event_ms(event)
        if event_ms:
            wiring.service().log.note_event(event_ms)  # before anything that was remembered is used (I4, I7)
        self.current_event = APIGatewayProxyEventV2(dict(event))
        self.lambda_context = context
        try:
            return self._build_response(self._resolve())
        finally:
            self.context = {}

    def route(self, rule: str, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        register = super().route(rule, *args, **kwargs)

        def registered(function: Any) -> Any:
            register(function)
            # Powertools builds this at a route's first request, which two threads would do twice over each other.
            for route in (*self._static_routes, *self._dynamic_routes):
                if not route._middleware_stack_built:
                    route._build_middleware_stack(self._router_middlewares, self)
            return function

        return registered

    @staticmethod
    def _compile_regex(rule: str, base_regex: str = "") -> Any:  # noqa: ARG004
        return routes.pattern(rule)

    def _push_processed_stack_frame(self, frame: str) -> None:
        """Keep no frames: they are for debugging, and shared by all threads."""

    def _handle_not_found(self, method: str, path: str) -> ResponseBuilder[Any]:
        allowed = routes.methods_of(path)
        if allowed:
            error: FencelineError = MethodNotAllowedError(f"this path takes {', '.join(allowed)}: method={method}")
            response = responses.problem(error)
            response.headers["allow"] = ", ".join(allowed)
        else:
            response = responses.problem(NotFoundError(f"no such path: path={path}"))
        return ResponseBuilder(response)

    def _build_response(self, response_builder: ResponseBuilder[Any]) -> dict[str, Any]:
        response = response_builder.response
        if self.event.get("isRaw"):
            return {"statusCode": response.status_code, "headers": response.headers, "body": response.body}
        if not responses.passes(response.body or ""):
            response_builder = ResponseBuilder(responses.problem(_too_large()))
        return super()._build_response(response_builder)


def _too_large() -> MessageTooLargeError:
    """Return the answer in place of one that no gateway carries: it holds one record, which was compressed."""
    return MessageTooLargeError(
        f"the record is too large for JSON; read it as a batch: accept={BATCH_TYPE}",
        bytes_max=limits.GATEWAY_BYTES_MAX,
    )
