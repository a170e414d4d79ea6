"""One operation of the HTTP contract, stated once: its route, its handler, its request and its answers.

Rule: `dispatch`, `openapi` and the deployed API read the same `Route`. A handler is named and not imported, so that a
function imports no other function's handlers.

Not here: the routes themselves (`operations`), the whole table (`routes`), and which request takes which (`dispatch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from fenceline.answers import is_declared
from fenceline_http.request_schema import Body, Query

Function = Literal["produce", "read", "admin", "subscriptions", "sessions", "transactions"]

_ANYWHERE = ("INVALID_REQUEST", "UNAUTHENTICATED", "NOT_AUTHORIZED", "THROTTLED")
_OF_BODIES = ("RECORD_LIST_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")


class Route:
    """One method on one path, and all that is known of it.

    Args:
        handler: ``MODULE.FUNCTION`` among the handlers. The module's name is also that of the Lambda function.
        operation: The name that generated clients give it.
        takes: The declaration of its JSON body or of its query.
        takes_batch: Whether its body is a record batch.
        batches: The declaration of its query where its body is a record batch instead. The document does not show it.
        answers: Status to an example of the answer, whose class declares it, or to a schema; None for an empty body.
        codes: Those of its errors, without the codes that every operation and every body has.
        query: An example of the query; ``body`` is one of JSON, and so is ``answer``, where there is a schema.
        gives_batches: Whether it answers with record batches.
        gives_page: Whether it answers with HTML.
    """

    def __init__(
        self,
        method: str,
        path: str,
        handler: str,
        *,
        operation: str,
        tag: str,
        summary: str,
        description: str,
        answers: Mapping[int, Any],
        codes: Sequence[str] = (),
        takes: type[Body | Query] = Query,
        takes_batch: bool = False,
        batches: type[Query] | None = None,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        answer: Any = None,
        gives_batches: bool = False,
        gives_page: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        module, _, self.handler = handler.partition(".")
        self.function = cast("Function", module)
        self.operation = operation
        self.tag = tag
        self.summary = summary
        self.description = description
        self.answers = answers
        known = (*_ANYWHERE, *(_OF_BODIES if takes_batch or issubclass(takes, Body) else ()), *codes)
        self.codes = tuple(dict.fromkeys(known))  # each once, because generators take no type twice
        self.takes = takes
        self.takes_batch = takes_batch
        self.batches = batches
        self.query = query or {}
        self.body = body
        first = next(iter(answers.values()))
        self.answer = first if is_declared(type(first)) else answer
        self.gives_batches = gives_batches
        self.gives_page = gives_page
        self.segments = path.split("/")

    @property
    def methods(self) -> Sequence[str]:
        """The methods that lead to it: HEAD goes wherever GET does."""
        return ("GET", "HEAD") if self.method == "GET" else (self.method,)
